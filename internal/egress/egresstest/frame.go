package egresstest

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/cofferdam/cofferdam/internal/egress/netstack"
)

// Frame makes a frame that is wrong in some way: noise, or something near a
// packet of each kind with some of its bytes changed.
func Frame(r *rand.Rand) []byte {
	n := 14 + r.IntN(200)
	if r.IntN(50) == 0 {
		n = 14 + r.IntN(netstack.MTU)
	}
	f := make([]byte, n)
	for i := range f {
		f[i] = byte(r.Uint32())
	}
	copy(f, netstack.GatewayMAC())
	copy(f[6:], []byte{2, 0xcf, 0xfd, 0, 0, 2})
	p := f[14:]
	switch r.IntN(6) {
	case 0:
		binary.BigEndian.PutUint16(f[12:], 0x0806)
		if len(p) >= 28 {
			copy(p, []byte{0, 1, 8, 0, 6, 4, 0, byte(1 + r.IntN(2))})
			copy(p[14:], []byte{198, 18, 0, 2})
		}
	case 1, 2, 3:
		binary.BigEndian.PutUint16(f[12:], 0x0800)
		if len(p) >= 40 {
			four(r, p)
		}
	case 4:
		binary.BigEndian.PutUint16(f[12:], 0x86dd)
		if len(p) >= 60 {
			six(r, p)
		}
	}
	// Sometimes one byte more is wrong.
	if r.IntN(4) == 0 {
		f[r.IntN(len(f))] = byte(r.Uint32())
	}
	return f
}

func four(r *rand.Rand, p []byte) {
	p[0] = 0x45
	if r.IntN(10) == 0 {
		p[0] = 0x40 | byte(r.IntN(16))
	}
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
	if r.IntN(10) > 0 {
		p[6], p[7] = 0, 0
	}
	p[9] = []byte{1, 6, 17, 6, 6}[r.IntN(5)]
	copy(p[12:], netstack.Inside4().AsSlice())
	copy(p[16:], []byte{198, 18, byte(r.IntN(2)), byte(1 + r.IntN(3))})
	binary.BigEndian.PutUint16(p[10:], 0)
	binary.BigEndian.PutUint16(p[10:], checksum(p[:20]))
	transport(r, p[9], p[20:], p[12:20])
}

func six(r *rand.Rand, p []byte) {
	p[0] = 0x60
	binary.BigEndian.PutUint16(p[4:], uint16(len(p)-40))
	p[6] = []byte{6, 17, 58, 0, 43, 44, 60, 6, 58}[r.IntN(9)]
	copy(p[8:], netstack.Inside6().AsSlice())
	copy(p[24:], netstack.Gateway6().AsSlice())
	transport(r, p[6], p[40:], p[8:40])
}

// transport makes the checksum right, so that the packet gets far.
func transport(r *rand.Rand, proto byte, b, addresses []byte) {
	at := -1
	switch proto {
	case 1:
		at = 2
		b[0] = 8
	case 58:
		at = 2
		b[0] = []byte{128, 135, 136, 133}[r.IntN(4)]
	case 6:
		at = 16
		if len(b) >= 20 {
			b[12] = byte(5+r.IntN(11)) << 4
			b[13] = byte(r.Uint32()) // flags
			binary.BigEndian.PutUint16(b[2:], []uint16{53, 80, 443, 9}[r.IntN(4)])
			binary.BigEndian.PutUint16(b, uint16(1000+r.IntN(8)))
		}
	case 17:
		at = 6
		binary.BigEndian.PutUint16(b[2:], 53)
		binary.BigEndian.PutUint16(b[4:], uint16(len(b)))
	}
	if at < 0 || len(b) < at+2 {
		return
	}
	b[at], b[at+1] = 0, 0
	pseudo := append([]byte(nil), addresses...)
	if proto == 1 {
		pseudo = nil
	} else {
		pseudo = append(pseudo, 0, 0, byte(len(b)>>8), byte(len(b)), 0, 0, 0, proto)
	}
	binary.BigEndian.PutUint16(b[at:], checksum(append(pseudo, b...)))
}

func checksum(b []byte) uint16 {
	var s uint32
	for i := 0; i+1 < len(b); i += 2 {
		s += uint32(b[i])<<8 | uint32(b[i+1])
	}
	if len(b)%2 == 1 {
		s += uint32(b[len(b)-1]) << 8
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return ^uint16(s)
}
