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
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress"
	"github.com/cofferdam/cofferdam/internal/egress/egresstest"
	"github.com/cofferdam/cofferdam/internal/egress/guard"
	"github.com/cofferdam/cofferdam/internal/egress/names"
	"github.com/cofferdam/cofferdam/internal/egress/outbound"
	"github.com/cofferdam/cofferdam/internal/egress/sigv4"
	"github.com/cofferdam/cofferdam/internal/policy/decide"
	"github.com/cofferdam/cofferdam/internal/task"
)

// TestBenchGateway measures what the gateway costs by itself: no sandbox, no
// platform, no root. COFFERDAM_BENCH names one of its parts, as in TestBench.
func TestBenchGateway(t *testing.T) {
	only := os.Getenv("COFFERDAM_BENCH")
	var rows []row
	for _, part := range []struct {
		name    string
		measure func(t *testing.T) []row
	}{{"carriers", carriers}, {"body", body}, {"rules", rules}} {
		if only == "" || only == part.name {
			rows = append(rows, part.measure(t)...)
		}
	}
	if len(rows) > 0 {
		fmt.Print("\n" + printed(rows) + "\n")
	}
}

const (
	standInKeys = "AKIAPLACEHOLDERABCDE:placeholderabcdefghijklmnopqrstuvwxyz234"
	realKeys    = "AKIAIOSFODNN7REALKEY:wJalrXUtnFEMI/K7MDENG/bPxRfiCYREALVALUE0"
	standIn     = "placeholder-0123456789abcdef"
)

// carrierOf is one way in which requests carry a value, as a program uses it.
type carrierOf struct {
	what  string
	path  string
	lease task.Lease
	put   func(t testing.TB, r *http.Request, text string)
}

func carriersOf() []carrierOf {
	basic := func(_ testing.TB, r *http.Request, text string) { r.SetBasicAuth("robot", text) }
	return []carrierOf{
		{"a header", "/v1/x", task.Lease{Header: "X-Api-Key"}, func(_ testing.TB, r *http.Request, text string) { r.Header.Set("X-Api-Key", text) }},
		{"a header, an answer of 64 KiB that is masked", "/v1/long", task.Lease{Header: "X-Api-Key"}, func(_ testing.TB, r *http.Request, text string) { r.Header.Set("X-Api-Key", text) }},
		{"the query", "/v1/x", task.Lease{Kind: task.KindQuery, Settings: map[string]string{task.SettingParameter: "key"}}, func(_ testing.TB, r *http.Request, text string) { r.URL.RawQuery = "key=" + text }},
		{"Basic", "/v1/x", task.Lease{Kind: task.KindBasic, Settings: map[string]string{task.SettingUser: "robot"}}, basic},
		{"git", "/o/r.git/info/refs?service=git-upload-pack", task.Lease{Kind: task.KindGit, Settings: map[string]string{task.SettingUser: "robot", task.SettingPush: "no"}}, basic},
		{"a signature of AWS", "/b/k", task.Lease{Kind: task.KindAWS, Placeholder: standInKeys, Settings: map[string]string{task.SettingRegion: "us-east-1", task.SettingServices: "s3"}}, sign},
	}
}

// sign signs a request without a body, as a client of AWS does.
func sign(t testing.TB, r *http.Request, text string) {
	keys, err := task.ParseAWSKeys(text)
	if err != nil {
		t.Fatal(err)
	}
	stamp := time.Now().UTC().Format("20060102T150405Z")
	r.Header.Set("X-Amz-Date", stamp)
	r.Header.Set("X-Amz-Content-Sha256", sigv4.Digest(nil))
	r.Header.Set("Authorization", fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s/%s/us-east-1/s3/aws4_request, SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature=%s",
		keys.ID, stamp[:8], strings.Repeat("0", 64)))
	m := sigv4.Message{Method: r.Method, Host: r.URL.Host, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery, Header: r.Header}
	c, err := sigv4.Parse(m)
	if err != nil {
		t.Fatal(err)
	}
	made, err := c.Sign(m, keys.ID, keys.Secret.Reveal(), "", sigv4.Digest(nil), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", made.Authorization)
}

type lends string

func (v lends) Value(context.Context, string, task.Lease) (outbound.Secret, error) {
	return task.NewSecret(string(v)), nil
}

// lane is a gateway with one sandbox's network, and a server outside.
type lane struct {
	t              *testing.T
	inside, direct *http.Transport
	port           uint16
}

func newLane(t *testing.T, lease task.Lease, value string, h http.HandlerFunc) *lane {
	const id = "sb-aaaaaaaaaaaaaaaa"
	far := egresstest.NewFar(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	egresstest.Serve(t, l, far.Certificate(t, "model.test", time.Now().Add(time.Hour)), true, h)
	port := netip.MustParseAddrPort(l.Addr().String()).Port()
	g, err := egress.New(egress.Options{
		Resolver: loopback{}, Guard: guard.New(nil, nil), Roots: far.Roots, Lender: lends(value),
		Records: t.TempDir(), SealKey: []byte("a key for measuring only"), Log: slog.New(slog.DiscardHandler),
		Stored: func(context.Context, string, names.Entry) error { return nil }, Broken: func(string) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	lease.ID, lease.Credential, lease.Hosts, lease.Ports = "l-aaaaaaaaaaaaaaaa", "key", []string{"model.test"}, []uint16{port}
	if lease.Placeholder == "" {
		lease.Placeholder = standIn
	}
	device, inside := egresstest.Pair(t)
	pem, _, err := g.Attach(egress.Handed{Sandbox: id, Device: device, Grant: task.Grant{
		Sandbox: id, Rules: []task.Rule{{ID: "r", Host: "model.test", Ports: []uint16{port}, Credential: "key", Private: true}}, Leases: []task.Lease{lease},
	}})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	way := &lane{
		t: t, port: port, inside: &http.Transport{DialContext: egresstest.NewClient(t, inside).DialContext, TLSClientConfig: &tls.Config{RootCAs: roots}},
		direct: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: far.Roots}, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, l.Addr().String())
		}},
	}
	t.Cleanup(way.inside.CloseIdleConnections)
	t.Cleanup(way.direct.CloseIdleConnections)
	return way
}

// ask makes one request and gives how long it took until its answer was whole.
func (l *lane) ask(tr *http.Transport, r *http.Request) (time.Duration, int64) {
	begun := time.Now()
	res, err := tr.RoundTrip(r)
	if err != nil {
		l.t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, res.Body)
	took := time.Since(begun)
	res.Body.Close()
	if err != nil || res.StatusCode != 200 {
		l.t.Fatalf("%s %s: %s, %v", r.Method, r.URL, res.Status, err)
	}
	return took, n
}

// carriers compares, for each carrier, requests whose TLS the gateway ends with
// the same requests made directly: one warm connection, in turn.
func carriers(t *testing.T) []row {
	long := strings.Repeat(`{"text":"some words of an answer, as a model gives them","n":12345},`, 64<<10/68)
	var rows []row
	for _, c := range carriersOf() {
		value := "a-real-value-0123456789"
		if c.lease.Kind == task.KindAWS {
			value = realKeys
		}
		l := newLane(t, c.lease, value, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/long" {
				_, _ = io.WriteString(w, long)
				return
			}
			_, _ = io.WriteString(w, "hello")
		})
		place := standIn
		if c.lease.Placeholder != "" {
			place = c.lease.Placeholder
		}
		var ours, peer figure
		for i := range 1010 {
			for _, way := range []struct {
				tr   *http.Transport
				text string
				to   *figure
			}{{l.direct, value, &peer}, {l.inside, place, &ours}} {
				r, err := http.NewRequestWithContext(t.Context(), "GET", fmt.Sprintf("https://model.test:%d%s", l.port, c.path), http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				c.put(t, r, way.text)
				if took, _ := l.ask(way.tr, r); i >= 10 { // the first ones warm connections and caches
					*way.to = append(*way.to, took)
				}
			}
		}
		rows = append(rows, row{
			what: "request through interception, the value in " + c.what,
			ours: fmt.Sprintf("%.2f ms (p99 %.2f)", ms(ours.p(0.5)), ms(ours.p(0.99))), peer: fmt.Sprintf("%.2f ms (p99 %.2f) direct TLS", ms(peer.p(0.5)), ms(peer.p(0.99))),
			ratio: fmt.Sprintf("+%.2f ms (p99 +%.2f)", ms(ours.p(0.5)-peer.p(0.5)), ms(ours.p(0.99)-peer.p(0.99))), bar: "+1 ms (p99 +5)",
		})
	}
	return rows
}

type nothing struct{}

func (nothing) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// body sends and fetches bodies through interception, masked, and tells how far
// the heap of the gateway, both stacks, the client and the server grew.
func body(t *testing.T) []row {
	var rows []row
	var small uint64
	for _, size := range []int64{64 << 20, 2 << 30} {
		l := newLane(t, task.Lease{Header: "X-Api-Key"}, "a-real-value-0123456789", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.CopyN(w, nothing{}, size)
		})
		var most atomic.Uint64
		stop := make(chan struct{})
		var wg sync.WaitGroup
		runtime.GC()
		wg.Go(func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-stop:
					return
				case <-tick.C:
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
					most.Store(max(most.Load(), m.HeapInuse))
				}
			}
		})
		r, err := http.NewRequestWithContext(t.Context(), "POST", fmt.Sprintf("https://model.test:%d/v1/big", l.port), io.NopCloser(io.LimitReader(nothing{}, size)))
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = size
		r.Header.Set("X-Api-Key", standIn)
		took, n := l.ask(l.inside, r)
		close(stop)
		wg.Wait()
		if n != size {
			t.Fatalf("%d of %d bytes", n, size)
		}
		if small == 0 {
			small = most.Load()
			continue
		}
		rows = append(rows, row{
			what: "2 GiB up and 2 GiB down through interception with masking: most heap in use, both ends included, against 64 MiB each way",
			ours: fmt.Sprintf("%d MiB (%.0f MB/s, both ways together)", most.Load()>>20, 2*float64(size)/1e6/took.Seconds()), peer: fmt.Sprintf("%d MiB", small>>20),
			ratio: fmt.Sprintf("%.2f ×", float64(most.Load())/float64(small)), bar: "flat",
		})
	}
	return rows
}

// rules decides one request under many rules.
func rules(t *testing.T) []row {
	var grant task.Grant
	for i := range 10_000 {
		r := task.Rule{ID: fmt.Sprint(i), Host: fmt.Sprintf("h%d.example.com", i), Ports: []uint16{443}, Methods: []string{"GET"}, Paths: []string{"/v1/**"}}
		if i%10 == 1 {
			r.Host = "**." + r.Host
			r.Query = []task.Match{{Name: "a", Kind: task.MatchRE2, Value: "[a-z]+[0-9]*"}, {Name: "b", Kind: task.MatchAbsent}}
			r.Headers = []task.Match{{Name: "Accept", Kind: task.MatchPrefix, Value: "application/"}}
		}
		grant.Rules = append(grant.Rules, r)
	}
	index := decide.NewIndex(grant)
	use, q := decide.Use{Name: "a.b.h9991.example.com", Port: 443}, decide.Request{
		Method: "GET", Path: "/v1/a/b/c", Query: "a=abc12&c=3", Header: map[string][]string{"Accept": {"application/json"}, "User-Agent": {"x"}},
	}
	var each []float64
	for range 200 {
		begun := time.Now()
		for range 100 {
			if index.DecideRequest(use, q).Verdict != task.Allowed {
				t.Fatal("denied")
			}
		}
		each = append(each, float64(time.Since(begun).Microseconds())/100)
	}
	slices.Sort(each)
	return []row{{what: "a request is decided under 10,000 rules", ours: fmt.Sprintf("%.1f µs (p99 %.1f)", each[100], each[197]), peer: "–", ratio: "–", bar: "≤ 10 µs"}}
}
