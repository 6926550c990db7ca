package egress

import "github.com/cofferdam/cofferdam/internal/task"

// record is what is known of the connection now.
func (c *connection) record() task.EgressRecord {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := task.EgressRecord{
		Conn: c.id, Task: c.grant.Task, Stage: c.grant.Stage, Name: c.name, Address: c.address, Port: c.to.Port(),
		Protocol: c.protocol, SNI: c.sni, HostName: c.host, Rule: c.decision.Rule, Lease: c.lease,
	}
	if c.dialled.IsValid() {
		r.Address = c.dialled.Addr().String()
	}
	return r
}

// denied records a refusal. address is the one that was refused, when it isn't
// the one asked for.
func (c *connection) denied(reason task.Reason, address string) {
	rec := c.record()
	rec.Verdict, rec.Reason = task.Denied.String(), reason
	if address != "" {
		rec.Address = address
	}
	c.way.records.Deny(rec)
}

// mismatch notes why an allowed connection was refused after all, for its last
// record.
func (c *connection) mismatch(reason task.Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reason = reason
}

// saw notes what the client turned out to speak.
func (c *connection) saw(protocol, sni, host string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.protocol = protocol
	if sni != "" {
		c.sni = sni
	}
	if host != "" {
		c.host = host
	}
}

// finish writes the last record.
func (c *connection) finish() {
	c.release()
	if c.recorded {
		rec := c.record()
		c.mu.Lock()
		rec.Reason = c.reason
		c.mu.Unlock()
		rec.Done, rec.Verdict = true, task.Allowed.String()
		if rec.Reason.Class() == "policy" {
			rec.Verdict = task.Denied.String()
		}
		rec.BytesIn, rec.BytesOut = c.in.Load(), c.out.Load()
		if err := c.way.records.Append(rec); err != nil {
			c.way.log.Error("decision log", "error", err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.done != nil {
		close(c.done)
	}
}
