//go:build root

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// public is a server at an address that no guard calls private: in a network
// namespace of its own, as on another machine.
func public(t *testing.T, h http.Handler) (address string, port int) {
	t.Helper()
	const here, there = "203.0.113.1/30", "203.0.113.2/30"
	made := make(chan error, 1)
	var listener net.Listener
	var host netlink.Link
	go func() {
		runtime.LockOSThread() // and never let go: the thread ends with the goroutine
		made <- func() error {
			outside, err := netns.Get()
			if err != nil {
				return err
			}
			defer outside.Close()
			inside, err := netns.New() // this thread is in it now
			if err != nil {
				return err
			}
			defer inside.Close()
			out, err := netlink.NewHandleAt(outside)
			if err != nil {
				return err
			}
			defer out.Close()
			if err := out.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "cfask0"}, PeerName: "cfask1", PeerNamespace: netlink.NsFd(inside)}); err != nil {
				return err
			}
			if host, err = out.LinkByName("cfask0"); err != nil {
				return err
			}
			if err := address4(out, host, here); err != nil {
				return err
			}
			in, err := netlink.NewHandle()
			if err != nil {
				return err
			}
			defer in.Close()
			peer, err := in.LinkByName("cfask1")
			if err != nil {
				return err
			}
			if err := address4(in, peer, there); err != nil {
				return err
			}
			listener, err = net.Listen("tcp", "203.0.113.2:0")
			return err
		}()
	}()
	err := <-made
	t.Cleanup(func() {
		if host != nil {
			_ = netlink.LinkDel(host)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close() })
	at := listener.Addr().(*net.TCPAddr)
	return at.IP.String(), at.Port
}

func address4(h *netlink.Handle, link netlink.Link, text string) error {
	a, err := netlink.ParseAddr(text)
	if err != nil {
		return err
	}
	if err := h.AddrAdd(link, a); err != nil {
		return err
	}
	return h.LinkSetUp(link)
}

// waiting waits for what waits for an answer in the task's agent stage.
func waiting(t *testing.T, e *testenv.Env, id string) (found api.Approval) {
	t.Helper()
	testenv.Until(t, patience, "something waits for an answer", func() bool {
		list, err := e.Client.Approvals(context.Background(), false, id)
		if err == nil && len(list) > 0 && list[0].Stage == "agent" {
			found = list[0]
		}
		if got, err := e.Client.Task(context.Background(), id); err == nil && got.EndedAt != nil {
			t.Fatalf("nothing was asked: %+v %s", got, log(t, e, id, "agent"))
		}
		return found.ID != ""
	})
	return found
}

// A connection that no rule matches is held while a person decides, also over a
// control plane that is killed meanwhile; what was decided is in the task, its
// receipt and the gateway's records.
func TestAsking(t *testing.T) {
	address, port := public(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "far says %s%s\n", r.Host, r.URL.Path) }))
	ns := testenv.Names(t, map[string]string{"pub.test.": address, "other.test.": address, "priv.test.": "127.0.0.1"})
	e := testenv.Start(t, testenv.Config{DNS: ns.Addr, OperatorPolicy: "version: 1\nceiling: {unknown: log}\n"})
	base := repo(t, map[string]string{"a": "b\n"})

	t.Run("answered", func(t *testing.T) {
		made := submit(t, e, api.TaskRequest{
			Repo: bundle(t, e, base), Policy: "version: 1\nsetup: {network: {unknown: ask, askWait: 1s}}\nagent: {network: {unknown: ask, askWait: 5m}}\n",
			Setup: fmt.Sprintf("curl -sS -m 60 http://pub.test:%d/late > late; grep approval.expired late; rm late", port),
			Agent: api.Agent{Name: "command", Argv: []string{"bash", "-c", fmt.Sprintf(`set -x
(exec -a "$(printf 'curl\033[2Jhidden')" curl -sS -m 280 http://pub.test:%[1]d/first)
curl -sS -m 280 http://pub.test:%[1]d/second
curl -sS -m 280 http://other.test:%[1]d/third
curl -sS -m 60 http://other.test:%[1]d/fourth
curl -sS -m 60 http://169.254.169.254/
true`, port)}},
		})
		a := waiting(t, e, made.ID)
		if g := a.Egress; g == nil || g.Name != "pub.test" || int(g.Port) != port || g.Method != "GET" || g.Path != "/first" || a.Sandbox == "" || a.Requester != "admin" {
			t.Errorf("asked %+v", a)
		}
		ran := fmt.Sprint(a.Commands)
		if !strings.Contains(ran, "hidden") {
			t.Errorf("what ran is not told: %s", ran)
		}
		if asked := ns.Asked("pub.test"); len(asked) != 0 {
			t.Errorf("looked up before the answer: %q", asked)
		}
		// A control plane that is killed asks on.
		old := e.Kill("cofferdamd")
		e.Reborn("cofferdamd", old)
		out, err := e.CLI("approvals")
		if err != nil || !strings.Contains(out, a.ID) || !strings.Contains(out, "GET /first") || !strings.Contains(out, "hidden") || strings.Contains(out, "\x1b") {
			t.Errorf("%q %v", out, err)
		}
		if out, err := e.CLI("approve", a.ID, "--scope", "task"); err != nil || !strings.Contains(out, "allowed, task") {
			t.Fatalf("%q %v", out, err)
		}
		third := waiting(t, e, made.ID)
		if third.Egress == nil || third.Egress.Name != "other.test" {
			t.Errorf("the second was asked about: %+v", third)
		}
		if out, err := e.CLI("deny", third.ID); err != nil {
			t.Fatalf("%q %v", out, err)
		}
		got := e.WaitTask(made.ID, patience)
		must(t, e, got, api.Succeeded, "")
		text := log(t, e, got.ID, "agent")
		for _, want := range []string{fmt.Sprintf("far says pub.test:%d/first", port), "/second\n", "approval.denied", "policy.address"} {
			if !strings.Contains(text, want) {
				t.Errorf("the agent's log lacks %q: %s", want, text)
			}
		}
		if n := strings.Count(text, `"approval.denied"`); n != 2 || strings.Contains(text, "far says other.test") {
			t.Errorf("denied %d times: %s", n, text)
		}
		states := map[string]int{}
		for _, a := range got.Approvals {
			states[a.State]++
		}
		if states["allowed"] != 1 || states["denied"] != 1 || states["expired"] != 1 {
			t.Errorf("%v", states)
		}
		records, err := e.Client.Egress(context.Background(), got.ID)
		if err != nil {
			t.Fatal(err)
		}
		allowed := 0
		for _, r := range records {
			if r.Verdict == "allowed" && !r.Done && r.Request == 0 && strings.HasPrefix(r.Rule, "ask/d-") && r.Name == "pub.test" {
				allowed++
			}
		}
		if allowed != 2 {
			t.Errorf("%d connections under the decision: %+v", allowed, records)
		}
		receipt, err := e.CLI("task", "receipt", got.ID, "--json")
		if err != nil || strings.Count(receipt, `"approval.asked"`) != 3 || !strings.Contains(receipt, `"state":"denied"`) && !strings.Contains(receipt, `"state": "denied"`) {
			t.Errorf("%v %.2000s", err, receipt)
		}
		if out, err := e.CLI("task", "show", got.ID); err != nil || !strings.Contains(out, third.ID) {
			t.Errorf("%q %v", out, err)
		}
	})

	t.Run("log only", func(t *testing.T) {
		got := run(t, e, api.TaskRequest{
			Repo: bundle(t, e, base), Policy: "version: 1\nagent: {network: {unknown: log}}\n",
			Agent: sh(fmt.Sprintf("curl -sS -m 60 http://pub.test:%[1]d/x; curl -sS -m 60 http://priv.test/; true", port)),
		})
		must(t, e, got, api.Succeeded, "")
		if text := log(t, e, got.ID, "agent"); !strings.Contains(text, "far says pub.test") || !strings.Contains(text, "policy.address") {
			t.Errorf("%s", text)
		}
		records, err := e.Client.Egress(context.Background(), got.ID)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, r := range records {
			found = found || r.Rule == "log-only" && r.Verdict == "allowed" && r.Name == "pub.test"
		}
		if !found {
			t.Errorf("%+v", records)
		}
	})

	t.Run("cancelled", func(t *testing.T) {
		made := submit(t, e, api.TaskRequest{
			Repo: bundle(t, e, base), Policy: "version: 1\nagent: {network: {unknown: ask, askWait: 5m}}\n", Agent: sh(fmt.Sprintf("curl -sS http://pub.test:%d/", port)),
		})
		a := waiting(t, e, made.ID)
		if err := e.Client.CancelTask(context.Background(), made.ID); err != nil {
			t.Fatal(err)
		}
		must(t, e, e.WaitTask(made.ID, patience), api.Cancelled, "cancelled")
		got, err := e.Client.Approval(context.Background(), a.ID)
		if err != nil || got.State != "withdrawn" {
			t.Errorf("%+v %v", got, err)
		}
	})
}
