package pace

import (
	"fmt"
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	now := time.Unix(1000, 0)
	p := Pace{Rate: 10, Burst: 5, Most: 3}
	n := 0
	for p.May("a", now) {
		n++
	}
	if n != 5 || !p.May("b", now) || p.May("a", now.Add(-time.Hour)) {
		t.Errorf("%d at once", n)
	}
	// It was seen an hour earlier, so only the burst has filled since.
	n = 0
	for p.May("a", now) {
		n++
	}
	if n != 5 || p.May("a", now.Add(50*time.Millisecond)) || !p.May("a", now.Add(150*time.Millisecond)) {
		t.Errorf("%d after an hour", n)
	}
	for i := range 4 {
		p.May(fmt.Sprint(i), now)
	}
	if len(p.buckets) > 4 {
		t.Errorf("%d are remembered", len(p.buckets))
	}
	var none Pace
	if none.May("a", now) || none.May("a", now.Add(time.Hour)) {
		t.Error("the zero pace lets somebody ask")
	}
}
