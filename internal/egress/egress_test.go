package egress

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

func TestPlainHTTPPasses(t *testing.T) {
	u := httpServer(t)
	r := newRig(t, []task.Rule{private("ok.test", u.port)})
	client := r.http(nil)
	for i := range 3 {
		status, body := r.get(client, fmt.Sprintf("http://ok.test:%d/a%%2Fb?x=%d;y", u.port, i))
		if want := fmt.Sprintf("GET ok.test:%d /a%%2Fb?x=%d;y ", u.port, i); status != 200 || body != want {
			t.Errorf("%d %q, want %q", status, body, want)
		}
	}
	res, err := client.Post(fmt.Sprintf("http://ok.test:%d/", u.port), "text/plain", strings.NewReader(strings.Repeat("b", 100_000)))
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if len(body) < 100_000 {
		t.Errorf("a posted body came back as %d bytes", len(body))
	}
	if n := u.accepted.Load(); n != 1 {
		t.Errorf("%d connections upstream for one kept alive", n)
	}
	client.CloseIdleConnections()
	end := r.await("end", func(rec task.EgressRecord) bool { return rec.Done && rec.Protocol == "http" })
	if end.BytesOut != u.bytes.Load() || end.BytesIn < 100_000 || end.Verdict != "allowed" || end.Rule != "rule:ok.test" || end.Name != "ok.test" || end.Address != "127.0.0.1" {
		t.Errorf("record %+v, upstream saw %d bytes", end, u.bytes.Load())
	}
}

func TestSplicedTLSPasses(t *testing.T) {
	u, pool := tlsServer(t)
	r := newRig(t, []task.Rule{private("example.com", u.port)})
	r.resolver.hosts["example.com"] = addrs("127.0.0.1")
	status, body := r.get(r.http(&tls.Config{RootCAs: pool}), fmt.Sprintf("https://example.com:%d/", u.port))
	if status != 200 || !strings.Contains(body, "HTTP/2.0") {
		t.Errorf("%d %q", status, body)
	}
	r.await("allowed", func(rec task.EgressRecord) bool {
		return rec.Verdict == "allowed" && !rec.Done && rec.Name == "example.com"
	})
}

func TestUnreachableAndUnresolved(t *testing.T) {
	gone := listen(t)
	gone.Close()
	r := newRig(t, []task.Rule{private("dead.test", 80, 443, gone.port), private("nowhere.test", 80)})
	if status, body := r.get(r.http(nil), "http://nowhere.test/"); status != 502 || code(t, body) != task.EgressUnresolved {
		t.Errorf("unresolved: %d %q", status, body)
	}
	if c, err := r.client.DialName(r.ctx(), "tcp", "dead.test", gone.port); err == nil {
		c.Close()
		t.Error("a dead upstream is open inside")
	}
	end := r.await("unreachable", func(rec task.EgressRecord) bool { return rec.Done && rec.Reason == task.EgressUnreachable })
	if end.Name != "dead.test" || end.Verdict != "allowed" {
		t.Errorf("%+v", end)
	}
}

func TestServerMaySpeakFirst(t *testing.T) {
	u := listen(t)
	go func() {
		for {
			c, err := u.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				fmt.Fprint(c, "220 ready\r\n")
				line, _ := bufio.NewReader(c).ReadString('\n')
				fmt.Fprintf(c, "you said %s", line)
			}()
		}
	}()
	r := newRig(t, []task.Rule{private("ok.test", u.port)})
	c, err := r.client.DialName(r.ctx(), "tcp", "ok.test", u.port)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(15 * time.Second))
	b := bufio.NewReader(c)
	if line, err := b.ReadString('\n'); line != "220 ready\r\n" {
		t.Fatalf("%q, %v", line, err)
	}
	fmt.Fprint(c, "HELO me\r\n")
	if rest, err := io.ReadAll(b); string(rest) != "you said HELO me\r\n" || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
}

func TestClientMaySpeakFirstAndHalfClose(t *testing.T) {
	u := listen(t)
	go func() {
		for {
			c, err := u.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				all, _ := io.ReadAll(c)
				c.Write(bytes.ToUpper(all))
			}()
		}
	}()
	r := newRig(t, []task.Rule{private("second.test", u.port)})
	for _, send := range []string{"ruok", "\x00\x01binary", "hello there\nsecond", "line\n" + strings.Repeat("long ", 200_000)} {
		c, err := r.client.DialName(r.ctx(), "tcp", "second.test", u.port)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(20 * time.Second))
		io.WriteString(c, send)
		c.CloseWrite()
		if back, err := io.ReadAll(c); string(back) != strings.ToUpper(send) || err != nil {
			t.Errorf("%.20q: %d bytes back, %v", send, len(back), err)
		}
		c.Close()
	}
	// 127.0.0.9 was tried first, and each address dialled has its own record.
	r.await("first address", func(rec task.EgressRecord) bool { return rec.Address == "127.0.0.9" && !rec.Done })
	r.await("second address", func(rec task.EgressRecord) bool { return rec.Address == "127.0.0.1" && rec.Done && rec.BytesIn > 0 })
}

func TestGrantCutsWhatWasOpen(t *testing.T) {
	u := listen(t)
	go func() {
		for {
			c, err := u.Accept()
			if err != nil {
				return
			}
			go io.Copy(io.Discard, c)
		}
	}()
	r := newRig(t, []task.Rule{private("ok.test", u.port)})
	c, err := r.client.DialName(r.ctx(), "tcp", "ok.test", u.port)
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(15 * time.Second))
	c.Write([]byte("\x00some bytes"))
	if err := r.gateway.SetGrant(grantOf(private("ok.test", u.port))); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("more")); err != nil {
		t.Errorf("the same grant cut a connection: %v", err)
	}
	// What was on its way before is counted before.
	for begun := time.Now(); u.bytes.Load() < 15 && time.Since(begun) < 15*time.Second; {
		runtime.Gosched()
	}
	before := u.bytes.Load()
	if err := r.gateway.SetGrant(task.Grant{Sandbox: testID}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still open")
	}
	c.Write([]byte("late"))
	if after := u.bytes.Load(); after != before {
		t.Errorf("%d bytes passed after the grant was taken", after-before)
	}
	if c, err := r.client.DialName(r.ctx(), "tcp", "ok.test", u.port); err == nil {
		c.Close()
		t.Error("a new connection passes")
	}
	end := r.await("end", func(rec task.EgressRecord) bool { return rec.Done })
	if end.BytesOut != before || end.Stage != task.Agent {
		t.Errorf("%+v, upstream saw %d bytes", end, before)
	}
	if err := r.gateway.SetGrant(task.Grant{Sandbox: "sb-bbbbbbbbbbbbbbbb"}); err == nil {
		t.Error("an unknown sandbox takes a grant")
	}
}

func TestConnectionsAreCapped(t *testing.T) {
	u := listen(t)
	r := newRig(t, []task.Rule{private("ok.test", u.port)}, func(o *Options) { o.Limits.Connections = 4 })
	for range 4 {
		c, err := r.client.DialName(r.ctx(), "tcp", "ok.test", u.port)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	if c, err := r.client.DialName(r.ctx(), "tcp", "ok.test", u.port); err == nil {
		c.Close()
		t.Error("the fifth of four passes")
	}
	r.await("cap", denied(task.LimitConnections))
}

func TestRecordIsWrittenBeforeTheDial(t *testing.T) {
	u := listen(t)
	seen := make(chan int, 1)
	r := newRig(t, []task.Rule{private("ok.test", u.port)})
	go func() {
		c, err := u.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		n := 0
		for _, rec := range r.logged() {
			if rec.Verdict == "allowed" && rec.Name == "ok.test" && rec.Address == "127.0.0.1" {
				n++
			}
		}
		seen <- n
	}()
	c, err := r.client.DialName(r.ctx(), "tcp", "ok.test", u.port)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if n := <-seen; n != 1 {
		t.Errorf("when the upstream accepted there were %d records", n)
	}
}

func TestNoRecordNoDial(t *testing.T) {
	u := listen(t)
	r := newRig(t, []task.Rule{private("ok.test", u.port)})
	r.gateway.way(testID).records.Close() // a log that takes nothing, as with a full disk
	if c, err := r.client.DialName(r.ctx(), "tcp", "ok.test", u.port); err == nil {
		c.Close()
		t.Error("a connection without a record")
	}
	if u.accepted.Load() != 0 {
		t.Error("dialled without a record")
	}
}

func TestUpgradePasses(t *testing.T) {
	u := listen(t)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, b, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		line, _ := b.ReadString('\n')
		fmt.Fprintf(c, "echo %s", line)
	})}
	go server.Serve(u)
	t.Cleanup(func() { server.Close() })
	r := newRig(t, []task.Rule{private("ok.test", u.port)})
	c, err := r.client.DialName(r.ctx(), "tcp", "ok.test", u.port)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(15 * time.Second))
	fmt.Fprint(c, "GET /ws HTTP/1.1\r\nHost: ok.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	b := bufio.NewReader(c)
	res, err := http.ReadResponse(b, nil)
	if err != nil || res.StatusCode != 101 {
		t.Fatalf("%v, %v", res, err)
	}
	fmt.Fprint(c, "ping\n")
	if line, err := b.ReadString('\n'); line != "echo ping\n" {
		t.Errorf("%q, %v", line, err)
	}
}
