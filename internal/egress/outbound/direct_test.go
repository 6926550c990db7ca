package outbound

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/egresstest"
	"github.com/cofferdam/cofferdam/internal/egress/guard"
	"github.com/cofferdam/cofferdam/internal/task"
)

// What the control plane asks outside goes over verified TLS to addresses that
// were judged, follows nothing and tells nothing of what a far side sent.
func TestDirect(t *testing.T) {
	far := egresstest.NewFar(t)
	serve := func(name string, until time.Time) netip.AddrPort {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		egresstest.Serve(t, l, far.Certificate(t, name, until), true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/redirect":
				http.Redirect(w, r, "https://other.test/", http.StatusFound)
			case "/cut":
				panic(http.ErrAbortHandler)
			default:
				fmt.Fprint(w, "here")
			}
		}))
		return netip.MustParseAddrPort(l.Addr().String())
	}
	good, late := serve("forge.test", time.Now().Add(time.Hour)), serve("late.test", time.Now().Add(-time.Minute))
	closed := netip.AddrPortFrom(good.Addr(), 1)
	names := hosts{"forge.test": "127.0.0.1", "late.test": "127.0.0.1", "other.test": "127.0.0.1", "meta.test": "169.254.169.254", "ours.test": "127.0.0.1"}
	ours := serve("ours.test", time.Now().Add(time.Hour))
	d := NewDirect(DirectOptions{
		Resolver: names, Roots: far.Roots, Guard: func() *guard.Guard { return guard.New([]netip.AddrPort{ours}, nil) },
		Private: func(host string, port uint16) bool {
			return host != "private.test" && port != closed.Port() || host == "forge.test"
		},
	})
	shut := NewDirect(DirectOptions{Resolver: names, Roots: far.Roots, Guard: func() *guard.Guard { return guard.New(nil, nil) }})
	for _, c := range []struct {
		by   *Direct
		url  string
		want task.Reason
	}{
		{d, fmt.Sprintf("https://forge.test:%d/", good.Port()), ""},
		{d, fmt.Sprintf("https://forge.test:%d/redirect", good.Port()), ""},
		{d, fmt.Sprintf("https://forge.test:%d/cut", good.Port()), task.EgressUnreachable},
		{d, fmt.Sprintf("http://forge.test:%d/", good.Port()), task.PolicyProtocol},
		{d, fmt.Sprintf("https://user@forge.test:%d/", good.Port()), task.PolicyProtocol},
		{d, fmt.Sprintf("https://other.test:%d/", good.Port()), task.EgressUntrusted},
		{d, fmt.Sprintf("https://late.test:%d/", late.Port()), task.EgressUntrusted},
		{d, fmt.Sprintf("https://127.0.0.1:%d/", good.Port()), task.EgressUntrusted},
		{d, fmt.Sprintf("https://forge.test:%d/", closed.Port()), task.EgressUnreachable},
		{d, "https://nowhere.test/", task.EgressUnresolved},
		{d, "https://meta.test/", task.PolicyAddress},
		{d, "https://169.254.169.254/", task.PolicyAddress},
		{d, "https://metadata.google.internal/", task.PolicyAddress},
		{d, fmt.Sprintf("https://ours.test:%d/", ours.Port()), task.PolicyAddress},
		{shut, fmt.Sprintf("https://forge.test:%d/", good.Port()), task.PolicyAddress},
		{shut, fmt.Sprintf("https://127.0.0.1:%d/", good.Port()), task.PolicyAddress},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.url, strings.NewReader("secret"))
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.by.RoundTrip(r)
		got := task.ReasonOf(err)
		if got != c.want || (err == nil) != (c.want == "") {
			t.Errorf("%s: %v, want %q", c.url, err, c.want)
		}
		if err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			res.Body.Close()
			if strings.HasSuffix(c.url, "/redirect") && res.StatusCode != http.StatusFound {
				t.Errorf("%s: %d: it was followed", c.url, res.StatusCode)
			}
		}
	}
}
