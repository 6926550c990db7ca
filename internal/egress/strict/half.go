package strict

import (
	"errors"
	"io"
	"os"
	"time"
)

// half is what a connection knows of a client that ended its side after a
// request and waits for the answer, as ncat and socat do. net/http takes that
// end for the end of the client, and gives up on the request.
type half struct {
	grace    time.Duration // 0: such an end is told at once
	answered int64         // requests
	wrote    time.Time
	deadline time.Time     // of reads
	wake     chan struct{} // closed when one of these changed; nil: nobody waits
	closed   bool
}

// Patient lets a client that ended its side while a request is answered wait
// for the answer, as long as none of grace passes without a byte of it: a
// client that is gone looks just the same. Call it before the first read.
func (c *Conn) Patient(grace time.Duration) { c.half.grace = grace }

// Answered says that one more request was answered.
func (c *Conn) Answered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.half.answered++
	c.half.changed()
}

// changed wakes who waits. The lock is held.
func (h *half) changed() {
	if h.wake != nil {
		close(h.wake)
		h.wake = nil
	}
}

// end gives the error that a read ends with: at once, or, where the client
// ended its side only, when nothing is left for it to wait for.
func (c *Conn) end(err error) error {
	if !errors.Is(err, io.EOF) {
		return err
	}
	since := time.Now()
	for {
		c.mu.Lock()
		h := &c.half
		waits := h.grace > 0 && c.state == atHead && len(c.in) == 0 && c.heads > h.answered && !h.closed
		last := since
		if h.wrote.After(last) {
			last = h.wrote
		}
		left := time.Until(last.Add(h.grace))
		if !waits || left <= 0 {
			c.mu.Unlock()
			return err
		}
		if !h.deadline.IsZero() {
			until := time.Until(h.deadline)
			if until <= 0 {
				c.mu.Unlock()
				return os.ErrDeadlineExceeded
			}
			left = min(left, until)
		}
		if h.wake == nil {
			h.wake = make(chan struct{})
		}
		wake := h.wake
		c.mu.Unlock()
		timer := time.NewTimer(left)
		select {
		case <-wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// Write passes on what answers.
func (c *Conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if c.half.grace > 0 {
		c.mu.Lock()
		c.half.wrote = time.Now()
		c.mu.Unlock()
	}
	return n, err
}

// SetReadDeadline ends reads at t, those that wait for an answer too.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.wakeAt(t)
	return c.Conn.SetReadDeadline(t)
}

// SetDeadline is SetReadDeadline, and ends writes too.
func (c *Conn) SetDeadline(t time.Time) error {
	c.wakeAt(t)
	return c.Conn.SetDeadline(t)
}

func (c *Conn) wakeAt(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.half.deadline = t
	c.half.changed()
}

// Close ends everything.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.half.closed = true
	c.half.changed()
	c.mu.Unlock()
	return c.Conn.Close()
}
