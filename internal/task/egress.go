package task

import "time"

// EgressRecord is one decision of the gateway, appended to a file before the
// connection is dialled, and completed by a second record with Done set when
// the connection ends.
type EgressRecord struct {
	Seq      int64     `json:"seq"`  // per sandbox, from 1
	Conn     int64     `json:"conn"` // ties the decision and the end of one connection
	Done     bool      `json:"done,omitempty"`
	Time     time.Time `json:"time"`
	Sandbox  string    `json:"sandbox"`
	Task     string    `json:"task,omitempty"`
	Stage    StageName `json:"stage,omitempty"`
	Name     string    `json:"name,omitempty"`    // the name asked for; empty for a literal address
	Address  string    `json:"address,omitempty"` // the literal address, or the one dialled
	Port     uint16    `json:"port"`
	Inside   uint16    `json:"inside,omitempty"` // the port inside that asked; where a connection outside begins
	Protocol string    `json:"protocol"`         // "tcp", "tls", "http", "udp", "dns", "icmp"
	SNI      string    `json:"sni,omitempty"`
	HostName string    `json:"host,omitempty"` // of an HTTP request
	Method   string    `json:"method,omitempty"`
	Path     string    `json:"path,omitempty"`    // without the query, cut at 1,024 bytes
	Status   int       `json:"status,omitempty"`  // that the far side answered; in Done records of a request
	Request  int64     `json:"request,omitempty"` // numbers the inspected requests of a connection from 1; 0: the record is about the connection
	Lease    string    `json:"lease,omitempty"`   // the lease whose value was lent to it
	Verdict  string    `json:"verdict"`           // "allowed" or "denied"
	Reason   Reason    `json:"reason,omitempty"`
	Rule     string    `json:"rule,omitempty"`
	BytesIn  int64     `json:"bytesIn,omitempty"`  // into the sandbox; in Done records
	BytesOut int64     `json:"bytesOut,omitempty"` // out of the sandbox; in Done records
	Count    int64     `json:"count,omitempty"`    // this record stands for so many alike refusals after the first; 0: for one
	// Tokens is what the answer of a model used; in Done records of requests that
	// asked one.
	Tokens *ModelTokens `json:"tokens,omitempty"`
}
