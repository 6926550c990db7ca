package egress

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// What streams under a rule is cut when the rule ends, also where its connection
// was made long before, and what passes under other rules goes on.
func TestEndOfARuleCuts(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		s := newStand(t, webKinds()[0])
		first := func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, "first\n")
			w.(http.Flusher).Flush()
		}
		s.answers(func(w http.ResponseWriter, r *http.Request) {
			first(w)
			<-r.Context().Done()
		})
		over := make(chan struct{})
		other := s.serve(s.authority.Certificate(t, "bad.test", time.Now().Add(time.Hour)), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			first(w)
			<-over
			_, _ = io.WriteString(w, "second\n")
		}))
		g := s.granted(nil, task.Rule{ID: "lasts", Host: "bad.test", Ports: []uint16{other.port}, Methods: []string{"GET"}, Private: true})
		until := time.Now().Add(time.Hour)
		g.Rules[0].Until, g.Leases[0].Ends = &until, &until
		if err := s.gateway.SetGrant(g); err != nil {
			t.Fatal(err)
		}
		open := func(r *http.Request) *bufio.Reader {
			res, err := s.inside(h2).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { res.Body.Close() })
			in := bufio.NewReader(res.Body)
			if line, err := in.ReadString('\n'); err != nil || line != "first\n" {
				t.Fatalf("%q, %v", line, err)
			}
			return in
		}
		lasts := open(s.request("GET", fmt.Sprintf("https://bad.test:%d/", other.port), nil))
		ends := open(s.asks("GET", s.url(s.kind.path), nil))
		s.gateway.way(testID).over(until)
		if rest, err := io.ReadAll(ends); err == nil || len(rest) > 0 {
			t.Errorf("h2 %v: the stream ended with %q, %v", h2, rest, err)
		}
		close(over)
		if line, err := lasts.ReadString('\n'); err != nil || line != "second\n" {
			t.Errorf("h2 %v: under the rule that lasts: %q, %v", h2, line, err)
		}
	}
}

// A rule with an end of its own ends by itself: what was lent with it is
// forgotten, and saying the grant again changes nothing.
func TestRuleEndsByItself(t *testing.T) {
	s := newStand(t, webKinds()[0])
	s.goes("before")
	g := s.granted(nil)
	until := time.Now().Add(50 * time.Millisecond)
	g.Rules[0].Until, g.Leases[0].Ends = &until, &until
	if err := s.gateway.SetGrant(g); err != nil {
		t.Fatal(err)
	}
	for kept := 1; kept > 0; {
		select {
		case told := <-s.told:
			kept = len(told.Leases)
		case <-s.ctx().Done():
			t.Fatal("nothing ended")
		}
	}
	for range 2 {
		if res, err := s.inside(true).Do(s.asks("GET", s.url(s.kind.path), nil)); err == nil {
			t.Errorf("after its end: %s", res.Status)
			res.Body.Close()
		}
		if err := s.gateway.SetGrant(g); err != nil {
			t.Fatal(err)
		}
	}
	// Another rule for the same host does not lend what ended.
	g.Rules = append(g.Rules, task.Rule{ID: "wide", Host: "ok.test", Ports: []uint16{s.port}, Credential: "lent", Private: true})
	if err := s.gateway.SetGrant(g); err != nil {
		t.Fatal(err)
	}
	s.refused("a lease that ended", "GET", s.url(s.kind.path), nil, 403, task.PolicyCredential)
}

// A rule ends also for the requests of a connection that is kept alive, whatever
// cuts it or not.
func TestEndedRuleOnAKeptConnection(t *testing.T) {
	s := newStand(t, webKinds()[0])
	g := s.granted(nil, task.Rule{ID: "other", Host: "ok.test", Ports: []uint16{s.port}, Methods: []string{"HEAD"}, Private: true})
	past := time.Now().Add(-time.Minute)
	g.Rules[0].Until = &past
	if err := s.gateway.SetGrant(g); err != nil {
		t.Fatal(err)
	}
	c := s.inside(true)
	if res, _ := s.do(c, s.request("HEAD", s.url(s.kind.path), nil)); res.StatusCode != 200 {
		t.Fatal(res.Status)
	}
	s.far.take()
	s.refusal("a rule that ended before", c, s.asks("GET", s.url(s.kind.path), nil), 403, task.PolicyDenied)
}

func TestLoginEndsByItself(t *testing.T) {
	b := newLentBase(t, "db.test")
	until := time.Now().Add(time.Hour)
	b.grant(func(g *task.Grant) { g.Rules[0].Until, g.Leases[0].Ends = &until, &until })
	c := b.comes("before its end")
	b.gateway.way(testID).over(until)
	if _, err := c.Exec(b.ctx(), "select 1"); err == nil {
		t.Error("the session outlives its rule")
	}
	until = time.Now().Add(-time.Minute)
	b.grant(func(g *task.Grant) { g.Leases[0].Ends = &until })
	b.stays("a lease that ended", "28000", "no login is lent for this host and port (policy.credential)", nil)
}
