package postgres

import (
	"crypto/rand"
	"encoding/binary"
	"net/netip"
	"sync"
)

// Session is where a session is, and the server's own key of it.
type Session struct {
	Name string // that its server was verified for
	At   netip.AddrPort
	Key  Key
}

// Keys are the keys that one sandbox has in place of the servers' own. The zero
// Keys are empty. Safe for concurrent use.
type Keys struct {
	mu   sync.Mutex
	held map[Key]Session
}

// Add gives a new random key for a session.
func (k *Keys) Add(s Session) Key {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held == nil {
		k.held = map[Key]Session{}
	}
	for {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails (crypto/rand since Go 1.24)
		// Programs show the first number as that of a process, which is positive.
		key := Key{binary.BigEndian.Uint32(b[:])&0x7fff_ffff | 1, binary.BigEndian.Uint32(b[4:])}
		if _, ok := k.held[key]; !ok {
			k.held[key] = s
			return key
		}
	}
}

// Find gives the session of a key.
func (k *Keys) Find(key Key) (Session, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, ok := k.held[key]
	return s, ok
}

// Remove forgets a key.
func (k *Keys) Remove(key Key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.held, key)
}
