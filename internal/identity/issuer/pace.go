package issuer

import (
	"sync"
	"time"
)

// How often one lease may have a token: each is a record that is kept for ever.
const (
	paceRate   = 10.0 // a second
	paceBurst  = 200.0
	paceLeases = 8192 // remembered at one time
)

// pace lets each lease ask at its own rate. The zero value is ready.
type pace struct {
	mu      sync.Mutex
	buckets map[string]bucket
}

type bucket struct {
	left float64
	at   time.Time
}

func (p *pace) may(lease string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.buckets == nil || len(p.buckets) > paceLeases {
		p.buckets = map[string]bucket{} // who is forgotten begins with a full bucket
	}
	b, ok := p.buckets[lease]
	if !ok {
		b = bucket{left: paceBurst, at: now}
	}
	b.left = min(paceBurst, b.left+max(0, now.Sub(b.at).Seconds())*paceRate)
	b.at = now
	let := b.left >= 1
	if let {
		b.left--
	}
	p.buckets[lease] = b
	return let
}
