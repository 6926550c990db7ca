//go:build bench

package bench

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress"
	"github.com/cofferdam/cofferdam/internal/egress/egresstest"
	"github.com/cofferdam/cofferdam/internal/egress/guard"
	"github.com/cofferdam/cofferdam/internal/egress/names"
	"github.com/cofferdam/cofferdam/internal/egress/outbound"
	"github.com/cofferdam/cofferdam/internal/task"
)

type loopback struct{}

func (loopback) Lookup(context.Context, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

type lending struct{}

func (lending) Value(context.Context, string, task.Lease) (outbound.Secret, error) {
	return task.NewSecret("a value"), nil
}

// intercept compares requests whose TLS the gateway ends, with a credential
// injected, with the same requests made directly: one client with one
// connection, and 50 connections at once.
func (b *bench) intercept() []row {
	far := egresstest.NewFar(b.t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	egresstest.Serve(b.t, l, far.Certificate(b.t, "model.test", time.Now().Add(time.Hour)), true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Api-Key") == "" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		_, _ = io.WriteString(w, "hello")
	}))
	port := netip.MustParseAddrPort(l.Addr().String()).Port()
	inside, pem := sandboxed(b.t, far.Roots, port)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	direct := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, l.Addr().String())
	}
	var rows []row
	for _, connections := range []int{1, 50} {
		// Alternately, so that what else the machine does falls on both.
		var ours, peer figure
		for range 4 {
			peer = append(peer, asked(b.t, direct, far.Roots, port, connections, "a value")...)
			ours = append(ours, asked(b.t, inside, roots, port, connections, "")...)
		}
		rows = append(rows, row{
			what: fmt.Sprintf("request through interception with injection, %d connections", connections),
			ours: fmt.Sprintf("%.2f ms (p99 %.2f)", ms(ours.p(0.5)), ms(ours.p(0.99))), peer: fmt.Sprintf("%.2f ms (p99 %.2f) direct TLS", ms(peer.p(0.5)), ms(peer.p(0.99))),
			ratio: fmt.Sprintf("+%.2f ms (p99 +%.2f)", ms(ours.p(0.5)-peer.p(0.5)), ms(ours.p(0.99)-peer.p(0.99))), bar: "+1 ms (p99 +5)",
		})
	}
	return rows
}

// sandboxed is a gateway with one sandbox's network, without a sandbox.
func sandboxed(t testing.TB, roots *x509.CertPool, port uint16) (dial func(context.Context, string, string) (net.Conn, error), pem []byte) {
	const id = "sb-aaaaaaaaaaaaaaaa"
	g, err := egress.New(egress.Options{
		Resolver: loopback{}, Guard: guard.New(nil, nil), Roots: roots, Lender: lending{},
		Records: t.TempDir(), SealKey: []byte("a key for measuring only"), Log: slog.New(slog.DiscardHandler),
		Stored: func(context.Context, string, names.Entry) error { return nil }, Broken: func(string) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	device, inside := egresstest.Pair(t)
	pem, _, err = g.Attach(egress.Handed{Sandbox: id, Device: device, Grant: task.Grant{
		Sandbox: id, Rules: []task.Rule{{ID: "r", Host: "model.test", Ports: []uint16{port}, Methods: []string{"POST"}, Paths: []string{"/v1/**"}, Credential: "key", Private: true}},
		Leases: []task.Lease{{ID: "l-aaaaaaaaaaaaaaaa", Credential: "key", Header: "X-Api-Key", Placeholder: "a placeholder", Hosts: []string{"model.test"}, Ports: []uint16{port}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return egresstest.NewClient(t, inside).DialContext, pem
}

// asked sends requests over so many connections of HTTP/1.1 at once and gives
// how long each took; connections are warm. Each of several asks ten times a
// second, since a machine that is full shows its size and not a latency, and
// not all at the same moment, since a burst shows how long its own queue is.
func asked(t testing.TB, dial func(context.Context, string, string) (net.Conn, error), roots *x509.CertPool, port uint16, connections int, key string) figure {
	each, pace := 200, time.Nanosecond
	if connections > 1 {
		each, pace = 30, 100*time.Millisecond
	}
	var mu sync.Mutex
	var all figure
	var wg sync.WaitGroup
	for n := range connections {
		wg.Go(func() {
			<-time.After(pace * time.Duration(n) / time.Duration(connections))
			tr := &http.Transport{DialContext: dial, TLSClientConfig: &tls.Config{RootCAs: roots}}
			defer tr.CloseIdleConnections()
			tick := time.NewTicker(pace)
			defer tick.Stop()
			var own figure
			for i := range each + 1 {
				<-tick.C
				r, err := http.NewRequestWithContext(t.Context(), "POST", fmt.Sprintf("https://model.test:%d/v1/x", port), http.NoBody)
				if err != nil {
					t.Error(err)
					return
				}
				if key != "" {
					r.Header.Set("X-Api-Key", key)
				}
				begun := time.Now()
				res, err := tr.RoundTrip(r)
				if err != nil {
					t.Error(err)
					return
				}
				_, err = io.Copy(io.Discard, res.Body)
				took := time.Since(begun)
				res.Body.Close()
				if err != nil || res.StatusCode != 200 {
					t.Errorf("%s, %v", res.Status, err)
					return
				}
				if i > 0 {
					own = append(own, took)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, own...)
		})
	}
	wg.Wait()
	return all
}
