// Package names gives each name that a sandbox asks for an address of its own,
// which stands for that name as long as the sandbox lives.
//
// Words. An entry ties a name to an index, counted from 0; the index fixes one
// IPv4 address (from 198.18.1.1 on) and one IPv6 address (in
// fd00:cffe:1::/64), so a table is restored from its entries alone. An entry is
// pending until the worker has stored it; only then may the address be told.
// An entry that was pending when its table was lost leaves a gap, which is not
// filled.
//
// Nothing here looks a name up.
package names

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
)

// Errors of a table.
var (
	ErrFull    = errors.New("too many names")
	ErrInvalid = errors.New("not a consistent table")
)

// Entry ties a name to an index.
type Entry struct {
	Name  string `json:"name"`
	Index int    `json:"index"`
}

// perBlock is how many addresses of each 198.18.x.0/24 are used: .0 and .255
// are left out, since some programs take them for networks and broadcasts.
const (
	perBlock = 254
	blocks   = 511 // 198.18.1.0/24 to 198.19.255.0/24
	// Most is the most names a table can hold.
	Most = perBlock * blocks
)

// Address4 is the entry's IPv4 address.
func (e Entry) Address4() netip.Addr {
	n := uint32(198<<24|18<<16|1<<8) + uint32(e.Index/perBlock)<<8 + uint32(e.Index%perBlock) + 1
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, n)))
}

// Address6 is the entry's IPv6 address.
func (e Entry) Address6() netip.Addr {
	a := [16]byte{0: 0xfd, 2: 0xcf, 3: 0xfe, 5: 1}
	binary.BigEndian.PutUint64(a[8:], uint64(e.Index)+1)
	return netip.AddrFrom16(a)
}

var (
	virtual4 = netip.MustParsePrefix("198.18.0.0/15")
	virtual6 = netip.MustParsePrefix("fd00:cffe::/32")
)

// Virtual says whether the address can only stand for a name or the gateway:
// no literal use of it goes anywhere.
func Virtual(a netip.Addr) bool { return virtual4.Contains(a) || virtual6.Contains(a) }

func indexOf(a netip.Addr) (int, bool) {
	if !Virtual(a) {
		return 0, false
	}
	if a.Is4() {
		b := a.As4()
		low := int(b[3])
		block := int(b[1]-18)<<8 + int(b[2]) - 1
		return block*perBlock + low - 1, block >= 0 && low != 0 && low != 255
	}
	b := a.As16()
	n := binary.BigEndian.Uint64(b[8:])
	return int(n) - 1, [8]byte(b[:8]) == [8]byte{0: 0xfd, 2: 0xcf, 3: 0xfe, 5: 1} && n >= 1 && n <= Most
}

// Table is the names of one sandbox. All methods are safe for concurrent use.
type Table struct {
	mu      sync.Mutex
	most    int
	entries []Entry // by index; a gap has no name
	stored  []bool
	byName  map[string]int
}

// New makes an empty table for at most most names.
func New(most int) *Table {
	return &Table{most: min(most, Most), byName: make(map[string]int)}
}

// Restore adds the entries that the worker had stored, in any order. It
// refuses repetitions and names that are not canonical.
func (t *Table) Restore(entries []Entry) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.entries) > 0 {
		return fmt.Errorf("names: restored twice: %w", ErrInvalid)
	}
	var ordered []Entry
	byName := make(map[string]int, len(entries))
	for _, e := range entries {
		name, ok := Canonical(e.Name)
		if !ok || name != e.Name || e.Index < 0 || e.Index >= Most {
			return fmt.Errorf("names: entry %q at %d: %w", e.Name, e.Index, ErrInvalid)
		}
		for len(ordered) <= e.Index {
			ordered = append(ordered, Entry{})
		}
		if _, twice := byName[name]; twice || ordered[e.Index].Name != "" {
			return fmt.Errorf("names: %q or index %d twice: %w", name, e.Index, ErrInvalid)
		}
		ordered[e.Index], byName[name] = e, e.Index
	}
	t.entries, t.byName, t.stored = ordered, byName, make([]bool, len(ordered))
	for i := range t.stored {
		t.stored[i] = ordered[i].Name != ""
	}
	return nil
}

// Allot gives the entry of a canonical name, made when there is none, and says
// whether it is stored already.
func (t *Table) Allot(name string) (e Entry, stored bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i, ok := t.byName[name]; ok {
		return t.entries[i], t.stored[i], nil
	}
	if len(t.byName) >= t.most || len(t.entries) >= Most {
		return Entry{}, false, fmt.Errorf("names: %d: %w", t.most, ErrFull)
	}
	e = Entry{Name: name, Index: len(t.entries)}
	t.entries, t.stored = append(t.entries, e), append(t.stored, false)
	t.byName[name] = e.Index
	return e, false, nil
}

// Stored marks the entry as stored by the worker.
func (t *Table) Stored(e Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.Index < len(t.entries) && t.entries[e.Index] == e {
		t.stored[e.Index] = true
	}
}

// Name gives the name that a virtual address stands for. Pending entries have
// no address yet.
func (t *Table) Name(a netip.Addr) (string, bool) {
	i, ok := indexOf(a)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !ok || i < 0 || i >= len(t.entries) || !t.stored[i] {
		return "", false
	}
	return t.entries[i].Name, true
}

// Canonical gives the lowercase form without a trailing dot of a name that a
// host can have, and whether it is one: labels of letters, digits, hyphens and
// underscores, the last one not a number, and none of the names that stand for
// the machine itself or its neighbours (localhost, .local, reverse lookups).
func Canonical(name string) (string, bool) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if name == "" || len(name) > 253 {
		return "", false
	}
	labels := strings.Split(name, ".")
	for _, l := range labels {
		if l == "" || len(l) > 63 || strings.IndexFunc(l, notHost) >= 0 {
			return "", false
		}
	}
	last := labels[len(labels)-1]
	switch {
	case numeric(last), last == "localhost", last == "local", last == "arpa", last == "onion", last == "invalid":
		return "", false
	}
	return name, true
}

// numeric says whether a URL parser would take the label for the end of an
// IPv4 address.
func numeric(label string) bool {
	if strings.Trim(label, "0123456789") == "" {
		return true
	}
	rest, hex := strings.CutPrefix(label, "0x")
	return hex && strings.Trim(rest, "0123456789abcdef") == ""
}

func notHost(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
}
