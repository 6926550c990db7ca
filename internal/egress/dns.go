package egress

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/miekg/dns"

	"github.com/cofferdam/cofferdam/internal/egress/names"
	"github.com/cofferdam/cofferdam/internal/egress/netstack"
	"github.com/cofferdam/cofferdam/internal/task"
)

const (
	queryMax    = 4096
	answersMax  = 64 // being made at one time, a sandbox
	storeWait   = 3 * time.Second
	nameTTL     = 600
	nameIdle    = 30 * time.Second // of a TCP connection to the name service
	headerBytes = 12               // of a DNS message
)

// serveNames answers queries that come as packets.
func (w *way) serveNames(conn net.PacketConn) {
	slots := make(chan struct{}, answersMax)
	buf := make([]byte, queryMax)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		query := append([]byte(nil), buf[:n]...)
		select {
		case slots <- struct{}{}:
		default:
			_, _ = conn.WriteTo(turnedDown(query), from)
			continue
		}
		go func() {
			defer func() { <-slots }()
			if reply := w.answerName(w.ctx, query); reply != nil {
				_, _ = conn.WriteTo(reply, from)
			}
		}()
	}
}

// serveNamesTCP answers queries that come over a connection (RFC 7766).
func (w *way) serveNamesTCP(r *netstack.Request) {
	c := &connection{way: w, to: r.To(), ctx: w.ctx, cancel: func() {}}
	w.mu.Lock()
	full := w.closed || len(w.conns) >= w.most
	if !full {
		w.conns[c] = struct{}{}
	}
	w.mu.Unlock()
	if full {
		r.Refuse()
		return
	}
	defer w.end(c)
	defer c.finish()
	inner, err := r.Accept(false)
	if err != nil || !c.hold(inner) {
		return
	}
	defer inner.Close()
	for {
		_ = inner.SetDeadline(time.Now().Add(nameIdle))
		var length [2]byte
		if _, err := io.ReadFull(inner, length[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(length[:]))
		if _, err := io.ReadFull(inner, query); err != nil || len(query) > queryMax {
			return
		}
		reply := w.answerName(w.ctx, query)
		if reply == nil {
			return
		}
		if _, err := inner.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}

// turnedDown is the shortest refusal of a query: its header alone.
func turnedDown(query []byte) []byte {
	if len(query) < headerBytes {
		return nil
	}
	reply := make([]byte, headerBytes)
	copy(reply, query[:2])
	reply[2], reply[3] = query[2]&0x79|0x80, dns.RcodeRefused
	return reply
}

// answerName makes the reply to a query, or nil when there is none to make.
func (w *way) answerName(ctx context.Context, query []byte) (reply []byte) {
	defer func() {
		if p := recover(); p != nil {
			w.log.Error("name query: panic", "panic", fmt.Sprint(p))
			reply = nil
		}
	}()
	if !w.queries.take() {
		rec := w.base()
		rec.Protocol, rec.Port, rec.Address = "dns", 53, netstack.Gateway4().String()
		rec.Verdict, rec.Reason = task.Denied.String(), task.LimitNames
		w.records.Tally(rec)
		return turnedDown(query)
	}
	q := new(dns.Msg)
	if err := q.Unpack(query); err != nil {
		if len(query) < headerBytes || query[2]&0x80 != 0 {
			return nil
		}
		reply = turnedDown(query)
		reply[3] = dns.RcodeFormatError
		return reply
	}
	if q.Response {
		return nil
	}
	out, err := w.reply(ctx, q).Pack()
	if err != nil {
		return turnedDown(query)
	}
	return out
}

// reply answers from the table of names alone: nothing is ever looked up
// because the inside asked.
func (w *way) reply(ctx context.Context, q *dns.Msg) *dns.Msg {
	r := new(dns.Msg)
	r.SetReply(q)
	r.RecursionAvailable = true
	if opt := q.IsEdns0(); opt != nil {
		r.SetEdns0(1232, false)
	}
	switch {
	case q.Opcode != dns.OpcodeQuery:
		r.Rcode = dns.RcodeNotImplemented
		return r
	case len(q.Question) != 1:
		r.Rcode = dns.RcodeFormatError
		return r
	case q.Question[0].Qclass != dns.ClassINET:
		r.Rcode = dns.RcodeRefused
		return r
	}
	question := q.Question[0]
	name, ok := names.Canonical(question.Name)
	if !ok {
		r.Rcode = dns.RcodeNameError
		return r
	}
	if question.Qtype != dns.TypeA && question.Qtype != dns.TypeAAAA {
		return r // the name exists and has no such record
	}
	entry, rcode := w.allot(ctx, name)
	if rcode != dns.RcodeSuccess {
		r.Rcode = rcode
		return r
	}
	header := dns.RR_Header{Name: question.Name, Rrtype: question.Qtype, Class: dns.ClassINET, Ttl: nameTTL}
	if question.Qtype == dns.TypeA {
		r.Answer = []dns.RR{&dns.A{Hdr: header, A: entry.Address4().AsSlice()}}
	} else {
		r.Answer = []dns.RR{&dns.AAAA{Hdr: header, AAAA: entry.Address6().AsSlice()}}
	}
	return r
}

// allot gives the name's entry once the worker has stored it.
func (w *way) allot(ctx context.Context, name string) (names.Entry, int) {
	entry, stored, err := w.names.Allot(name)
	if errors.Is(err, names.ErrFull) {
		rec := w.base()
		rec.Protocol, rec.Port, rec.Address = "dns", 53, netstack.Gateway4().String()
		rec.Verdict, rec.Reason = task.Denied.String(), task.LimitNames
		w.records.Tally(rec)
		return names.Entry{}, dns.RcodeRefused
	}
	if err != nil {
		return names.Entry{}, dns.RcodeServerFailure
	}
	if stored {
		return entry, dns.RcodeSuccess
	}
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	if err := w.gateway.options.Stored(ctx, w.id, entry); err != nil {
		w.log.Warn("name not stored", "error", err)
		return names.Entry{}, dns.RcodeServerFailure
	}
	w.names.Stored(entry)
	return entry, dns.RcodeSuccess
}
