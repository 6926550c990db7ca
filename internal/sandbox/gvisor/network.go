package gvisor

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The sandbox's device and addresses. The same in every sandbox: each stands in
// a namespace of its own, and the gateway tells sandboxes apart by descriptor.
// The prefixes are a single address, so that every packet goes to the gateway and
// nothing is asked for on the link.
const (
	deviceName  = "tap0"
	deviceMTU   = 65520
	deviceMAC   = "02:cf:fd:00:00:02"
	gatewayMAC  = "02:cf:fd:00:00:01"
	guestIPv4   = "198.18.0.2/32"
	gatewayIPv4 = "198.18.0.1"
	guestIPv6   = "fd00:cffe::2/128"
	gatewayIPv6 = "fd00:cffe::1"
)

// inNamespace runs f on a thread that is in the network namespace ns, or in a
// new one when ns is negative. The thread comes back to where it was; one that
// can't is never used again.
func inNamespace(ns int, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			runtime.UnlockOSThread()
			done <- fmt.Errorf("network namespace: %w", err)
			return
		}
		defer unix.Close(home)
		if ns < 0 {
			err = unix.Unshare(unix.CLONE_NEWNET)
		} else {
			err = unix.Setns(ns, unix.CLONE_NEWNET)
		}
		if err != nil {
			runtime.UnlockOSThread()
			done <- fmt.Errorf("network namespace: %w", err)
			return
		}
		err = f()
		if back := unix.Setns(home, unix.CLONE_NEWNET); back != nil {
			err = errors.Join(err, fmt.Errorf("leave the network namespace: %w", back))
		} else {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// newNamespace makes an empty network namespace without a name. It lives as long
// as the file, or a process in it.
func newNamespace(setUp func() error) (*os.File, error) {
	var file *os.File
	err := inNamespace(-1, func() error {
		fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("network namespace: %w", err)
		}
		file = os.NewFile(uintptr(fd), "netns")
		return setUp()
	})
	if err != nil && file != nil {
		file.Close()
	}
	if err != nil {
		return nil, err
	}
	return file, nil
}

// newNetwork makes a namespace with one persistent TAP device, addressed so that
// the sandbox's own network stack takes its addresses and routes over.
func newNetwork() (ns, tap *os.File, err error) {
	ns, err = newNamespace(func() error {
		if tap, err = openTAP(); err != nil {
			return err
		}
		return addressTAP()
	})
	if err != nil {
		if tap != nil {
			tap.Close()
		}
		return nil, nil, err
	}
	return ns, tap, nil
}

// openTAP attaches to the TAP device of the thread's namespace, making it when
// it is not there. The device is persistent: it stays, and so does the sentry's
// socket on it, when the last holder of its descriptor dies.
func openTAP() (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/net/tun: %w (load the module: modprobe tun)", err)
	}
	request, err := unix.NewIfreq(deviceName)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("TAP device: %w", err)
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("TAP device: %w", err)
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("TAP device: make persistent: %w", err)
	}
	return os.NewFile(uintptr(fd), "/dev/net/tun"), nil
}

func addressTAP() error {
	// The host's own stack shall say nothing on the device: no link-local address
	// and no solicitations. The file is missing where the host has no IPv6.
	_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+deviceName+"/addr_gen_mode", []byte("1"), 0)
	hardware, err := net.ParseMAC(deviceMAC)
	if err != nil {
		return err
	}
	link, err := netlink.LinkByName(deviceName)
	if err != nil {
		return fmt.Errorf("%s: %w", deviceName, err)
	}
	if err := netlink.LinkSetHardwareAddr(link, hardware); err != nil {
		return fmt.Errorf("%s: hardware address: %w", deviceName, err)
	}
	if err := netlink.LinkSetMTU(link, deviceMTU); err != nil {
		return fmt.Errorf("%s: MTU: %w", deviceName, err)
	}
	if lo, err := netlink.LinkByName("lo"); err != nil {
		return fmt.Errorf("lo: %w", err)
	} else if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("lo: %w", err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("%s: up: %w", deviceName, err)
	}
	return addRoutes(link, hostHasIPv6())
}

func hostHasIPv6() bool {
	_, err := os.Stat("/proc/sys/net/ipv6/conf/" + deviceName)
	return err == nil
}

func addRoutes(link netlink.Link, ipv6 bool) error {
	pairs := [][2]string{{guestIPv4, gatewayIPv4}}
	if ipv6 {
		pairs = append(pairs, [2]string{guestIPv6, gatewayIPv6})
	}
	hardware, err := net.ParseMAC(gatewayMAC)
	if err != nil {
		return err
	}
	for _, pair := range pairs {
		addr, err := netlink.ParseAddr(pair[0])
		if err != nil {
			return err
		}
		addr.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("%s: address %s: %w", deviceName, pair[0], err)
		}
		gateway := net.ParseIP(pair[1])
		for _, route := range []*netlink.Route{
			{LinkIndex: link.Attrs().Index, Scope: netlink.SCOPE_LINK, Dst: netlink.NewIPNet(gateway)},
			{LinkIndex: link.Attrs().Index, Gw: gateway},
		} {
			if err := netlink.RouteAdd(route); err != nil {
				return fmt.Errorf("%s: route by %s: %w", deviceName, pair[1], err)
			}
		}
		// A permanent entry, which the sandbox takes over too, so that nothing
		// depends on the gateway's answer to a question before the first packet.
		family := netlink.FAMILY_V4
		if gateway.To4() == nil {
			family = netlink.FAMILY_V6
		}
		neighbour := &netlink.Neigh{
			LinkIndex: link.Attrs().Index, Family: family, State: netlink.NUD_PERMANENT,
			IP: gateway, HardwareAddr: hardware,
		}
		if err := netlink.NeighSet(neighbour); err != nil {
			return fmt.Errorf("%s: neighbour %s: %w", deviceName, pair[1], err)
		}
	}
	return nil
}

// reopenTAP opens the TAP device of a living sandbox again. While somebody else
// holds it that is refused by the kernel (EBUSY).
func reopenTAP(sentry process) (*os.File, error) {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", sentry.PID))
	if err != nil {
		return nil, fmt.Errorf("network namespace of the sandbox: %w", err)
	}
	defer ns.Close()
	if !sentry.alive() {
		return nil, fmt.Errorf("network namespace of the sandbox: %w", errGone)
	}
	var tap *os.File
	err = inNamespace(int(ns.Fd()), func() error {
		// Without this look a missing device would be made anew, and the sandbox
		// would not be at its other end.
		if _, err := netlink.LinkByName(deviceName); err != nil {
			return fmt.Errorf("%s: %w", deviceName, err)
		}
		tap, err = openTAP()
		return err
	})
	return tap, err
}
