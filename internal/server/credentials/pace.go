package credentials

import (
	"sync"
	"time"
)

// How often one gateway may ask. A machine has some hundred sandboxes, each
// with a few leases, and asks for each about once a minute.
const (
	paceRate  = 50.0 // a second
	paceBurst = 200.0
	paceUsers = 4096 // remembered at one time
)

// pace lets each gateway ask at its own rate. The zero value is ready.
type pace struct {
	mu      sync.Mutex
	buckets map[string]bucket
}

type bucket struct {
	left float64
	at   time.Time
}

// may takes one from the bucket of who and says whether there was one.
func (p *pace) may(who string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.buckets == nil || len(p.buckets) > paceUsers {
		p.buckets = map[string]bucket{} // who is forgotten begins with a full bucket
	}
	b, ok := p.buckets[who]
	if !ok {
		b = bucket{left: paceBurst, at: now}
	}
	b.left = min(paceBurst, b.left+max(0, now.Sub(b.at).Seconds())*paceRate)
	b.at = now
	let := b.left >= 1
	if let {
		b.left--
	}
	p.buckets[who] = b
	return let
}
