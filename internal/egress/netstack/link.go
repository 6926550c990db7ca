package netstack

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

const (
	frameMax = header.EthernetMinimumSize + MTU
	// keepWhole is the size from which a frame keeps the buffer it was read
	// into. Smaller ones are copied, so that many small frames can't pin many
	// large buffers.
	keepWhole = frameMax / 2
	maxIovecs = 1024
)

// link is the stack's link endpoint: it reads frames, screens them, and
// delivers what passed.
type link struct {
	device *os.File
	raw    syscall.RawConn
	screen *screen
	mac    tcpip.LinkAddress
	ended  func(error) // called once, when the device can't be read any more or delivering panicked

	mu         sync.RWMutex
	dispatcher stack.NetworkDispatcher

	closed atomic.Bool
	wg     sync.WaitGroup
}

var _ stack.LinkEndpoint = (*link)(nil)

// newLink takes device over. It must be pollable.
func newLink(device *os.File, mac tcpip.LinkAddress, s *screen, ended func(error)) (*link, error) {
	raw, err := device.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("device: %w", err)
	}
	return &link{device: device, raw: raw, screen: s, mac: mac, ended: ended}, nil
}

// Attach implements stack.LinkEndpoint.
func (l *link) Attach(d stack.NetworkDispatcher) {
	l.mu.Lock()
	first := l.dispatcher == nil && d != nil
	l.dispatcher = d
	l.mu.Unlock()
	if first {
		l.wg.Add(1)
		go l.read()
	}
}

// read reads frames until the device ends.
func (l *link) read() {
	defer l.wg.Done()
	view := buffer.NewViewSize(frameMax)
	for {
		n, err := l.device.Read(view.AsSlice())
		if err != nil {
			if !l.closed.Load() {
				l.ended(fmt.Errorf("device: %w", err))
			}
			return
		}
		frame := view
		if n >= keepWhole {
			view = buffer.NewViewSize(frameMax)
			frame.CapLength(n)
		} else {
			frame = buffer.NewViewWithData(view.AsSlice()[:n])
		}
		if err := l.receive(frame); err != nil {
			l.ended(err)
			return
		}
	}
}

// receive screens one frame and delivers it. A panic on the way becomes an
// error: the stack it happened in may hold locks and is not used again.
func (l *link) receive(frame *buffer.View) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("frame of %d bytes: panic: %v", frame.Size(), p)
		}
	}()
	answer, pass := l.screen.look(frame.AsSlice())
	if answer != nil {
		l.write([][]byte{answer})
	}
	if !pass {
		frame.Release()
		return nil
	}
	l.mu.RLock()
	dispatcher := l.dispatcher
	l.mu.RUnlock()
	if dispatcher == nil {
		frame.Release()
		return nil
	}
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithView(frame)})
	defer pkt.DecRef()
	if !l.ParseHeader(pkt) {
		return nil
	}
	dispatcher.DeliverNetworkPacket(pkt.NetworkProtocolNumber, pkt)
	return nil
}

// WritePackets implements stack.LinkWriter.
func (l *link) WritePackets(pkts stack.PacketBufferList) (int, tcpip.Error) {
	written := 0
	for _, pkt := range pkts.AsSlice() {
		if err := l.write(pkt.AsSlices()); err != nil {
			return written, err
		}
		written++
	}
	return written, nil
}

// write writes one frame. A frame the device has no room for is dropped, as on
// any network.
func (l *link) write(pieces [][]byte) tcpip.Error {
	if len(pieces) > maxIovecs {
		whole := make([]byte, 0, frameMax)
		for _, p := range pieces {
			whole = append(whole, p...)
		}
		pieces = [][]byte{whole}
	}
	var err error
	if e := l.raw.Control(func(fd uintptr) { _, err = unix.Writev(int(fd), pieces) }); e != nil {
		return &tcpip.ErrClosedForSend{}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOBUFS):
		return &tcpip.ErrNoBufferSpace{}
	}
	return &tcpip.ErrClosedForSend{}
}

// MTU implements stack.LinkEndpoint.
func (l *link) MTU() uint32 { return MTU }

// SetMTU implements stack.LinkEndpoint; the MTU is fixed.
func (l *link) SetMTU(uint32) {}

// MaxHeaderLength implements stack.LinkEndpoint.
func (l *link) MaxHeaderLength() uint16 { return header.EthernetMinimumSize }

// LinkAddress implements stack.LinkEndpoint.
func (l *link) LinkAddress() tcpip.LinkAddress { return l.mac }

// SetLinkAddress implements stack.LinkEndpoint; the address is fixed.
func (l *link) SetLinkAddress(tcpip.LinkAddress) {}

// Capabilities implements stack.LinkEndpoint.
func (l *link) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityResolutionRequired
}

// IsAttached implements stack.LinkEndpoint.
func (l *link) IsAttached() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.dispatcher != nil
}

// Wait implements stack.LinkEndpoint.
func (l *link) Wait() { l.wg.Wait() }

// ARPHardwareType implements stack.LinkEndpoint.
func (l *link) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareEther }

// AddHeader implements stack.LinkEndpoint.
func (l *link) AddHeader(pkt *stack.PacketBuffer) {
	header.Ethernet(pkt.LinkHeader().Push(header.EthernetMinimumSize)).Encode(&header.EthernetFields{
		SrcAddr: pkt.EgressRoute.LocalLinkAddress,
		DstAddr: pkt.EgressRoute.RemoteLinkAddress,
		Type:    pkt.NetworkProtocolNumber,
	})
}

// ParseHeader implements stack.LinkEndpoint.
func (l *link) ParseHeader(pkt *stack.PacketBuffer) bool {
	h, ok := pkt.LinkHeader().Consume(header.EthernetMinimumSize)
	if !ok {
		return false
	}
	pkt.NetworkProtocolNumber = header.Ethernet(h).Type()
	return true
}

// Close implements stack.LinkEndpoint: it ends reading.
func (l *link) Close() {
	if l.closed.CompareAndSwap(false, true) {
		l.device.Close()
	}
}

// SetOnCloseAction implements stack.LinkEndpoint.
func (l *link) SetOnCloseAction(func()) {}
