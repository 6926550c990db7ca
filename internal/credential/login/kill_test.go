package login_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/credential/login"
	"github.com/cofferdam/cofferdam/internal/credential/provider"
	"github.com/cofferdam/cofferdam/internal/task"
)

const victimVariable = "COFFERDAM_LOGIN_TEST_VICTIM"

func TestMain(m *testing.M) {
	if of := os.Getenv(victimVariable); of != "" {
		if err := victim(strings.Split(of, "|")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// mortal kills its own process at one of the places where it is asked, which are
// before and after everything that a renewal does outside.
type mortal struct {
	left int
	via  http.RoundTripper
}

func (m *mortal) live() {
	if m.left--; m.left < 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func (m *mortal) RoundTrip(r *http.Request) (*http.Response, error) {
	m.live()
	res, err := m.via.RoundTrip(r)
	m.live()
	return res, err
}

func (m *mortal) now() time.Time { m.live(); return time.Now() }

// victim renews a login until it is killed.
func victim(of []string) error {
	left, err := strconv.Atoi(of[3])
	if err != nil {
		return err
	}
	m := &mortal{left: left, via: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // a server of the test's own
	c := task.Credential{ID: "c-1", Name: "mine", Kind: of[0], Settings: map[string]string{"dir": of[1], "token_url": of[2], "client_id": "client-1"}}
	made, err := login.New(login.Options{Now: m.now, Ask: provider.Provider{Via: m, Now: time.Now}}).Mint(context.Background(), c, task.Secret{}, task.Lent{})
	if err == nil {
		fmt.Println("lent " + made.Value.Reveal())
	}
	return err
}

// A kill at any place leaves a whole login. It is the new one once the vendor's
// answer was written; where the answer was lost, the error says to sign in again.
func TestKilledWhileRenewing(t *testing.T) {
	eachTool(t, time.Minute, func(t *testing.T, r *rig) {
		lost := 0
		for left := 0; ; left++ {
			if left > 40 {
				t.Fatal("it is never through")
			}
			r.do(func(s *site) { s.refresh = "rt-REALVALUE-again" })
			if err := os.WriteFile(r.file, []byte(text(r.of.Kind, "rt-REALVALUE-again", time.Minute)), 0o600); err != nil {
				t.Fatal(err)
			}
			_, before := r.count()
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), victimVariable+"="+strings.Join([]string{r.of.Kind, filepath.Dir(r.file), r.URL + "/token", strconv.Itoa(left)}, "|"))
			out, err := cmd.CombinedOutput()
			if err == nil {
				if !bytes.HasPrefix(out, []byte("lent ")) || !r.holds() {
					t.Errorf("%d: %s", left, out)
				}
				break
			}
			if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
				t.Fatalf("%d: %v: %s", left, err, out)
			}
			// Who was killed left its lock: others wait for a minute, and then take it over.
			for _, lock := range []string{filepath.Join(filepath.Dir(r.file), ".oauth_refresh.lock"), filepath.Join(filepath.Dir(r.file), ".storage-write.lock"), filepath.Dir(r.file) + ".lock"} {
				old := time.Now().Add(-61 * time.Second)
				_ = os.Chtimes(lock, old, old)
			}
			_, after := r.count()
			answered := after > before
			value, err := r.mint()
			switch {
			case answered && !r.holds():
				lost++
				if task.ReasonOf(err) != task.PolicyCredential || !strings.Contains(err.Error(), "sign in again") {
					t.Errorf("%d: lost, and then %v", left, err)
				}
			case err != nil || !strings.HasPrefix(value, "h.") || !r.holds():
				t.Errorf("%d: %v", left, err)
			}
		}
		if lost == 0 {
			t.Error("no kill fell between the answer and the write")
		}
	})
}
