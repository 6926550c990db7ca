package guard

import (
	"errors"
	"net/netip"
	"testing"
)

func TestJudge(t *testing.T) {
	own := func() ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("203.0.113.77"), netip.MustParseAddr("2001:db8::77")}, nil
	}
	g := New([]netip.AddrPort{
		netip.MustParseAddrPort("127.0.0.1:7777"), netip.MustParseAddrPort("0.0.0.0:8888"), netip.MustParseAddrPort("203.0.113.9:9999"),
	}, own)
	for _, c := range []struct {
		addr string
		port uint16
		want Reach
	}{
		// Metadata, in each spelling an address has.
		{"169.254.169.254", 80, Never},
		{"169.254.170.2", 80, Never},
		{"169.254.0.1", 443, Never},
		{"100.100.100.200", 80, Never},
		{"fd00:ec2::254", 80, Never},
		{"192.0.0.192", 80, Never},
		{"168.63.129.16", 80, Never},
		{"::ffff:169.254.169.254", 80, Never},
		{"::ffff:100.100.100.200", 80, Never},
		{"64:ff9b::a9fe:a9fe", 80, Never},
		{"64:ff9b:1::a9fe:a9fe", 80, Never},
		{"64:ff9b:1:a9fe:a9:fe00::", 80, Never},
		{"2002:a9fe:a9fe::1", 80, Never},
		{"2002:6464:64c8::", 80, Never},
		{"::169.254.169.254", 80, Never},
		{"::ffff:0:a9fe:a9fe", 80, Never},
		{"2001:0:102:304::5601:5601", 80, Never},
		{"fe80::a9fe:a9fe", 80, Never},
		{"2600::5efe:a9fe:a9fe", 80, Never},
		// Private ranges.
		{"10.1.2.3", 80, Private},
		{"172.16.0.1", 80, Private},
		{"172.31.255.255", 80, Private},
		{"192.168.1.1", 80, Private},
		{"127.0.0.1", 80, Private},
		{"127.9.9.9", 80, Private},
		{"0.0.0.0", 80, Private},
		{"0.1.2.3", 80, Private},
		{"100.64.0.1", 80, Private},
		{"198.18.0.1", 80, Private},
		{"198.19.255.255", 80, Private},
		{"224.0.0.1", 80, Private},
		{"255.255.255.255", 80, Private},
		{"::1", 80, Private},
		{"::", 80, Private},
		{"fc00::1", 80, Private},
		{"fd12::1", 80, Private},
		{"fe80::1", 80, Private},
		{"ff02::1", 80, Private},
		{"fec0::1", 80, Private},
		{"100::1", 80, Private},
		{"4000::1", 80, Private},
		{"::ffff:10.0.0.1", 80, Private},
		{"64:ff9b::7f00:1", 80, Private},
		{"2002:7f00:1::", 80, Private},
		{"::ffff:127.0.0.1", 80, Private},
		{"203.0.113.77", 80, Private},
		{"2001:db8::77", 80, Private},
		{"64:ff9b::cb00:714d", 80, Private},
		// Public.
		{"1.1.1.1", 443, Public},
		{"192.0.2.1", 80, Public},
		{"198.51.100.1", 80, Public},
		{"203.0.113.1", 80, Public},
		{"2606:4700::1111", 443, Public},
		{"2001:db8::1", 443, Public},
		{"64:ff9b::101:101", 443, Public},
		{"172.32.0.1", 80, Public},
		// The control plane's own listeners.
		{"127.0.0.1", 7777, Never},
		{"127.0.0.2", 7777, Never},
		{"0.0.0.0", 7777, Never},
		{"::1", 7777, Never},
		{"203.0.113.77", 7777, Never},
		{"::ffff:127.0.0.1", 7777, Never},
		{"127.0.0.1", 8888, Never},
		{"203.0.113.77", 8888, Never},
		{"2001:db8::77", 8888, Never},
		{"203.0.113.9", 9999, Never},
		{"203.0.113.9", 9998, Public},
		{"203.0.113.10", 9999, Public},
		{"10.0.0.1", 8888, Private},
		{"2002:7f00:1::", 7777, Never},
	} {
		if got := g.Judge(netip.MustParseAddr(c.addr), c.port); got != c.want {
			t.Errorf("Judge(%s, %d) = %s, want %s", c.addr, c.port, got, c.want)
		}
	}
}

func TestJudgeRefusesWhenBlind(t *testing.T) {
	g := New(nil, func() ([]netip.Addr, error) { return nil, errors.New("no netlink") })
	if got := g.Judge(netip.MustParseAddr("1.1.1.1"), 443); got != Never {
		t.Errorf("without knowledge of the own addresses: %s, want never", got)
	}
	if got := new(Guard).Judge(netip.Addr{}, 1); got != Never {
		t.Errorf("the zero address: %s, want never", got)
	}
}

func TestMetadataName(t *testing.T) {
	for name, want := range map[string]bool{
		"metadata.google.internal": true, "Metadata.Google.Internal.": true, "instance-data": true, "example.com": false, "": false,
	} {
		if got := MetadataName(name); got != want {
			t.Errorf("MetadataName(%q) = %v, want %v", name, got, want)
		}
	}
}
