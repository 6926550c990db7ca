// Package pace bounds how often somebody may ask: a bucket for each who asks,
// which fills at a rate.
//
// Not promised: that who was forgotten, since very many ask, does not begin with
// a full bucket again.
package pace

import (
	"sync"
	"time"
)

// Pace lets each who asks do so at their own rate. The zero Pace refuses
// everybody. It is safe for concurrent use.
type Pace struct {
	Rate  float64 // a second
	Burst float64 // at once
	Most  int     // remembered at one time

	mu      sync.Mutex
	buckets map[string]bucket
}

type bucket struct {
	left float64
	at   time.Time
}

// May takes one from the bucket of who and says whether there was one.
func (p *Pace) May(who string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.buckets == nil || len(p.buckets) > p.Most {
		p.buckets = map[string]bucket{}
	}
	b, ok := p.buckets[who]
	if !ok {
		b = bucket{left: p.Burst, at: now}
	}
	// A clock that is set back fills nothing.
	b.left = min(p.Burst, b.left+max(0, now.Sub(b.at).Seconds())*p.Rate)
	b.at = now
	let := b.left >= 1
	if let {
		b.left--
	}
	p.buckets[who] = b
	return let
}
