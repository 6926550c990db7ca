package netstack

import (
	"net"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
)

// MTU of the device, on both of its sides.
const MTU = 65520

// The addresses of the two sides of a device. They are the same for every
// sandbox, since no two of them share a network.
var (
	gateway4 = netip.AddrFrom4([4]byte{198, 18, 0, 1})
	gateway6 = netip.AddrFrom16([16]byte{0: 0xfd, 2: 0xcf, 3: 0xfe, 15: 1})
	inside4  = netip.AddrFrom4([4]byte{198, 18, 0, 2})
	inside6  = netip.AddrFrom16([16]byte{0: 0xfd, 2: 0xcf, 3: 0xfe, 15: 2})
)

// Gateway4 is the gateway's IPv4 address inside every sandbox.
func Gateway4() netip.Addr { return gateway4 }

// Gateway6 is the gateway's IPv6 address inside every sandbox.
func Gateway6() netip.Addr { return gateway6 }

// Inside4 is the sandbox's own IPv4 address.
func Inside4() netip.Addr { return inside4 }

// Inside6 is the sandbox's own IPv6 address.
func Inside6() netip.Addr { return inside6 }

// GatewayMAC is the link address of the gateway's side.
func GatewayMAC() net.HardwareAddr { return net.HardwareAddr{0x02, 0xcf, 0xfd, 0, 0, 1} }

func toNetip(a tcpip.Address) netip.Addr {
	addr, _ := netip.AddrFromSlice(a.AsSlice())
	return addr
}

func toTCPIP(a netip.Addr) tcpip.Address { return tcpip.AddrFromSlice(a.AsSlice()) }
