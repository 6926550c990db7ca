package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary is also the holder, every daemon and a supervisor: which one
// is told by its name or by its first argument.
func TestMain(m *testing.M) {
	switch {
	case slices.Contains(order(), filepath.Base(os.Args[0])) && (len(os.Args) < 2 || os.Args[1] != "hold"):
		exit(daemon(filepath.Base(os.Args[0]), os.Args[1:]))
	case len(os.Args) > 1 && os.Args[1] == "hold":
		exit(Hold(os.Args[2:]))
	case len(os.Args) > 1 && os.Args[1] == "supervise":
		exit(supervise(os.Args[2:]))
	}
	os.Exit(m.Run())
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "failed:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// supervise runs Up and prints what it tells when ready.
func supervise(args []string) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		if <-signals == syscall.SIGINT {
			cancel(ErrDrain)
		}
		cancel(nil)
	}()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return Up(ctx, Options{
		Data: args[0], Listen: args[1], Hold: []string{self, "hold"}, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Ready: func(r Ready) { _ = json.NewEncoder(os.Stdout).Encode(r) },
	})
}

// daemon behaves as a daemon does toward its supervisor. The file behave in
// its folder makes it misbehave.
func daemon(name string, args []string) error {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	data := flags.String("data", "", "")
	listen := flags.String("listen", "127.0.0.1:0", "")
	for _, ignored := range []string{"operator-policy", "prices", "issuer", "identity-publish-delay", "keep-tasks", "keep-outputs", "dns", "roots", "protect", "control", "control-token-file", "server", "token-file", "runsc", "guest", "hosts", "images"} {
		flags.String(ignored, "", "")
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	folder := map[string]string{"cofferdam-engine": "engine", "cofferdamd": "cofferdamd", "cofferdam-gateway": "gateway", "cofferdam-worker": "worker"}[name]
	dir := filepath.Join(*data, folder)
	behave, _ := os.ReadFile(filepath.Join(dir, "behave"))
	stop := make(chan os.Signal, 1)
	if strings.Contains(string(behave), "deaf") {
		signal.Ignore(syscall.SIGTERM)
	} else {
		signal.Notify(stop, syscall.SIGTERM)
	}
	if strings.Contains(string(behave), "broken") {
		return errors.New("the database is corrupt")
	}
	boot := Boot{Program: name, PID: os.Getpid(), Boot: randomHex(8), StartedAt: time.Now(), Address: "127.0.0.1:7233"}
	if name == "cofferdamd" {
		if err := serve(dir, *listen, boot.Boot); err != nil {
			return err
		}
	}
	env, err := json.Marshal(map[string]any{"uid": os.Getuid(), "env": os.Environ(), "args": os.Args})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "seen.json"), env, 0o600); err != nil {
		return err
	}
	text, err := json.Marshal(boot)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "boot.new"), text, 0o600); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(dir, "boot.new"), filepath.Join(dir, "boot.json")); err != nil {
		return err
	}
	fmt.Println(name, "ready")
	select {
	case <-stop:
	case <-time.After(time.Hour): // a deaf program waits for something, or the runtime calls it a deadlock
	}
	if _, err := os.Stat(filepath.Join(dir, "stop")); err == nil && name == workerName {
		return os.RemoveAll(filepath.Join(dir, "sandboxes"))
	}
	return nil
}

func serve(dir, listen, boot string) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "keys"), 0o700); err != nil {
		return err
	}
	for _, name := range []string{"admin", "worker", "gateway"} {
		if err := os.WriteFile(filepath.Join(dir, "keys", name+".token"), []byte("token-of-"+name+"\n"), 0o600); err != nil {
			return err
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/health", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `{"boot":%q}`, boot) })
	go func() { _ = http.Serve(l, mux) }()
	return nil
}

// copyProgram puts the test binary where every user may run it.
func copyProgram(t *testing.T, to string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", self, to).CombinedOutput(); err != nil {
		t.Fatalf("copy: %v %s", err, out)
	}
	if err := os.Chmod(to, 0o755); err != nil {
		t.Fatal(err)
	}
}

// until polls a condition, with a deadline that only a broken program meets.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
