package names

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestAddressesAreNeverShared(t *testing.T) {
	seen := make(map[netip.Addr]int, 2*Most)
	for i := range Most {
		e := Entry{Name: "x", Index: i}
		for _, a := range []netip.Addr{e.Address4(), e.Address6()} {
			if other, twice := seen[a]; twice {
				t.Fatalf("%s stands for %d and %d", a, other, i)
			}
			seen[a] = i
			if got, ok := indexOf(a); !ok || got != i {
				t.Fatalf("indexOf(%s) = %d, %v, want %d", a, got, ok, i)
			}
			if !Virtual(a) {
				t.Fatalf("%s is not virtual", a)
			}
		}
	}
}

func TestAllotted(t *testing.T) {
	table := New(2)
	a, stored, err := table.Allot("a.test")
	if err != nil || stored {
		t.Fatalf("first: stored %v, %v", stored, err)
	}
	if _, ok := table.Name(a.Address4()); ok {
		t.Error("a pending entry already stands for its name")
	}
	table.Stored(a)
	again, stored, _ := table.Allot("a.test")
	if again != a || !stored {
		t.Errorf("again: %v, stored %v, want %v", again, stored, a)
	}
	for _, addr := range []netip.Addr{a.Address4(), a.Address6()} {
		if name, ok := table.Name(addr); name != "a.test" || !ok {
			t.Errorf("Name(%s) = %q, %v", addr, name, ok)
		}
	}
	b, _, _ := table.Allot("b.test")
	if b.Address4() == a.Address4() || b.Address6() == a.Address6() {
		t.Error("two names share an address")
	}
	if _, _, err := table.Allot("c.test"); !errors.Is(err, ErrFull) {
		t.Errorf("third of two: %v, want ErrFull", err)
	}
	if _, _, err := table.Allot("b.test"); err != nil {
		t.Errorf("a known name in a full table: %v", err)
	}
}

func TestNoNameForOtherAddresses(t *testing.T) {
	table := New(Most)
	for i := range 300 {
		e, _, _ := table.Allot(fmt.Sprintf("n%d.test", i))
		table.Stored(e)
	}
	for _, s := range []string{
		"198.18.0.1", "198.18.0.2", "198.18.1.0", "198.18.1.255", "198.18.5.5", "198.19.255.255", "1.2.3.4", "198.17.1.1", "198.20.0.1",
		"fd00:cffe::1", "fd00:cffe:1::", "fd00:cffe:1::ffff", "fd00:cffe:2::1", "fd00:cffe:1:1::1", "fd00:cffe:1:0:ffff:ffff:ffff:ffff", "::1",
	} {
		if name, ok := table.Name(netip.MustParseAddr(s)); ok {
			t.Errorf("%s stands for %q", s, name)
		}
	}
}

func TestRestore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.IntRange(0, 30).Draw(t, "count")
		old := New(100)
		var entries []Entry
		for i := range count {
			e, _, err := old.Allot(fmt.Sprintf("h%d.test", i))
			if err != nil {
				t.Fatal(err)
			}
			entries = append(entries, e)
		}
		shuffled := rapid.Permutation(entries).Draw(t, "order")
		fresh := New(100)
		if err := fresh.Restore(shuffled); err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if name, ok := fresh.Name(e.Address4()); name != e.Name || !ok {
				t.Fatalf("after the restore %s stands for %q", e.Address4(), name)
			}
		}
		next, _, _ := fresh.Allot("new.test")
		if next.Index != count {
			t.Fatalf("new name got index %d, want %d", next.Index, count)
		}
	})
	gap := New(10)
	if err := gap.Restore([]Entry{{"b.test", 3}, {"a.test", 1}}); err != nil {
		t.Fatal(err)
	}
	if e, _, _ := gap.Allot("new.test"); e.Index != 4 {
		t.Errorf("after gaps a new name got index %d, want 4", e.Index)
	}
	if name, ok := gap.Name(Entry{Index: 2}.Address4()); ok {
		t.Errorf("a gap stands for %q", name)
	}
	for _, bad := range [][]Entry{
		{{"a.test", Most}}, {{"a.test", 0}, {"b.test", 0}}, {{"a.test", 0}, {"a.test", 1}}, {{"A.test", 0}}, {{"", 0}}, {{"a.test", -1}}, {{"127.0.0.1", 0}},
	} {
		if err := New(10).Restore(bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("Restore(%v) = %v, want ErrInvalid", bad, err)
		}
	}
}

func TestCanonical(t *testing.T) {
	long := strings.Repeat("a.", 126) + "aa"
	for in, want := range map[string]string{
		"Example.COM.": "example.com", "a": "a", "_dmarc.x.test": "_dmarc.x.test", "xn--bcher-kva.example": "xn--bcher-kva.example",
		"metadata.google.internal": "metadata.google.internal", "host.docker.internal": "host.docker.internal",
		"": "", ".": "", "a..b": "", "a b": "", "a\x00b.test": "", "é.test": "", strings.Repeat("a", 64) + ".test": "",
		long: "", "127.0.0.1": "", "2852039166": "", "0xa9fea9fe": "", "1.2.3.0x4": "", "localhost": "", "x.localhost": "",
		"printer.local": "", "1.0.18.198.in-addr.arpa": "", "a/b": "", "a:80": "", "*.test": "",
	} {
		got, ok := Canonical(in)
		if got != want || ok != (want != "") {
			t.Errorf("Canonical(%q) = %q, %v, want %q", in, got, ok, want)
		}
	}
}
