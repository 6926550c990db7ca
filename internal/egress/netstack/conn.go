package netstack

import (
	"fmt"
	"net/netip"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// Sizes of a connection's buffers: small is what it starts with, large what it
// may grow to. A connection made while many are open does not grow.
const (
	smallBuffer = 256 << 10
	largeBuffer = 4 << 20
)

// lingerWait bounds how long an ended connection may keep its memory because
// the sandbox takes no more bytes.
const lingerWait = 20 * time.Second

// Request is a connection that the sandbox asks for and that is not open yet:
// nothing was answered.
type Request struct {
	request *tcp.ForwarderRequest
	id      stack.TransportEndpointID
}

// To is where the sandbox wants to go.
func (r *Request) To() netip.AddrPort {
	return netip.AddrPortFrom(toNetip(r.id.LocalAddress), r.id.LocalPort)
}

// From is where the sandbox asks from.
func (r *Request) From() netip.AddrPort {
	return netip.AddrPortFrom(toNetip(r.id.RemoteAddress), r.id.RemotePort)
}

// Refuse answers with a reset.
func (r *Request) Refuse() { r.request.Complete(true) }

// Accept completes the handshake. grow says whether the connection's buffers
// may grow. After an error the request is over.
func (r *Request) Accept(grow bool) (*Conn, error) {
	var queue waiter.Queue
	ep, err := r.request.CreateEndpoint(&queue)
	if err != nil {
		r.request.Complete(true)
		return nil, fmt.Errorf("handshake: %s", err)
	}
	r.request.Complete(false)
	options := ep.SocketOptions()
	options.SetKeepAlive(true)
	options.SetDelayOption(false)
	idle, interval := tcpip.KeepaliveIdleOption(60*time.Second), tcpip.KeepaliveIntervalOption(15*time.Second)
	ep.SetSockOpt(&idle)
	ep.SetSockOpt(&interval)
	ep.SetSockOptInt(tcpip.KeepaliveCountOption, 4)
	if !grow {
		options.SetSendBufferSize(smallBuffer/4, true)
		options.SetReceiveBufferSize(smallBuffer/4, true)
	}
	return &Conn{TCPConn: gonet.NewTCPConn(&queue, ep), endpoint: ep}, nil
}

// Conn is an open connection of the sandbox.
type Conn struct {
	*gonet.TCPConn
	endpoint tcpip.Endpoint
}

// Close ends the connection; what was written still arrives, if the other side
// takes it in time.
func (c *Conn) Close() error {
	limit := tcpip.TCPUserTimeoutOption(lingerWait)
	c.endpoint.SetSockOpt(&limit)
	return c.TCPConn.Close()
}

// Abort ends the connection with a reset, at once.
func (c *Conn) Abort() { c.endpoint.Abort() }
