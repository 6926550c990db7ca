package egress

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

// turning answers a name's first look-up with one address and every later one
// with another, as a name server does that rebinds.
type turning struct {
	first, later netip.Addr
	asked        atomic.Int64
}

func (r *turning) Lookup(context.Context, string) ([]netip.Addr, error) {
	if r.asked.Add(1) == 1 {
		return []netip.Addr{r.first}, nil
	}
	return []netip.Addr{r.later}, nil
}

// The address that was checked is the one that is dialled: a name is looked up
// once a connection, and its later answer is reached by nobody.
func TestTheCheckedAddressIsDialled(t *testing.T) {
	good := httpServer(t)
	other, err := net.Listen("tcp", fmt.Sprintf("127.0.0.2:%d", good.port))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	var reached atomic.Int64
	go func() {
		for {
			c, err := other.Accept()
			if err != nil {
				return
			}
			reached.Add(1)
			c.Close()
		}
	}()
	names := &turning{first: netip.MustParseAddr("127.0.0.1"), later: netip.MustParseAddr("127.0.0.2")}
	r := newRig(t, []task.Rule{private("turning.test", good.port)}, func(o *Options) { o.Resolver = names })
	status, _ := r.get(r.http(nil), fmt.Sprintf("http://turning.test:%d/", good.port))
	if status != 200 || good.accepted.Load() == 0 {
		t.Errorf("status %d, %d connections to the checked address", status, good.accepted.Load())
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d connections to an address that was not checked", n)
	}
	if n := names.asked.Load(); n != 1 {
		t.Errorf("looked up %d times for one connection", n)
	}
}
