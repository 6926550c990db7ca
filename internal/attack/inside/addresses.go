package inside

import (
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// addresses are tried from a box whose policy names them all.
func addresses() map[string]func(*try) verdict {
	all := map[string]func(*try) verdict{
		"metadata.google-name": func(t *try) verdict { return t.plain("metadata.google.internal:80", "metadata.google.internal") },
		"metadata.tls":         func(t *try) verdict { return t.secure("169.254.169.254:443", "", "169.254.169.254") },
		"host.addresses":       func(t *try) verdict { return t.machine(t.plan.TCP, t.plan.Hosts) },
		"host.addresses-named": func(t *try) verdict { return t.machine(t.plan.TCP, t.plan.Hosts) },
		"host.api":             func(t *try) verdict { return t.api() },
		"host.api-named":       func(t *try) verdict { return t.api() },
		"host.udp":             func(t *try) verdict { return t.udp(t.plan.UDP, []byte(t.mark()), t.plan.Hosts...) },
		"host.gateway-address": func(t *try) verdict { return t.machine(t.plan.TCP, []string{gateway, "fd00:cffe::1"}) },
		"host.docker-name": func(t *try) verdict {
			return t.machine(t.plan.TCP, []string{"host.docker.internal", "gateway.docker.internal", "host.containers.internal"})
		},
		"host.own-name": func(t *try) verdict {
			return t.machine(t.plan.TCP, []string{"localhost.localdomain", "sandbox.local", "ip6-localhost"})
		},
		"host.mapped":       func(t *try) verdict { return t.machine(t.plan.TCP, mapped(t.plan.Hosts)) },
		"host.common-ports": func(t *try) verdict { return t.common() },
		"host.socket-path":  func(t *try) verdict { return unixSocket(t.plan.Socket) },
		"host.socket-climb": func(t *try) verdict {
			return each([]string{"/proc/1/root", "/proc/self/root/..", "/usr/../.."}, func(p string) verdict { return unixSocket(p + t.plan.Socket) })
		},
		"host.socket-abstract": func(t *try) verdict { return unixSocket("@" + t.plan.Abstract) },
		"host.docker-socket": func(*try) verdict {
			return each([]string{"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock", "/run/dbus/system_bus_socket", "/run/systemd/private"}, unixSocket)
		},
		"neighbour.addresses": func(t *try) verdict {
			return t.machine(t.plan.Next, []string{"198.18.0.3", "198.18.0.4", "198.19.0.2", "fd00:cffe::3", "fd00:cffe::4"})
		},
		"neighbour.by-loopback": func(t *try) verdict { return t.machine(t.plan.Next, []string{"127.0.0.1", "127.0.0.2", "::1"}) },
		"neighbour.abstract":    func(t *try) verdict { return unixSocket("@next-" + t.plan.Nonce) },
	}
	for id, host := range map[string]string{
		"aws": "169.254.169.254", "ecs": "169.254.170.2", "eks": "169.254.170.23", "alibaba": "100.100.100.200", "oracle": "192.0.0.192", "azure": "168.63.129.16",
		"aws-6": "fd00:ec2::254", "google-6": "fd20:ce::254", "mapped-6": "::ffff:169.254.169.254", "nat64": "64:ff9b::a9fe:a9fe", "6to4": "2002:a9fe:a9fe::1", "compatible-6": "::169.254.169.254",
	} {
		all["metadata."+id] = func(t *try) verdict {
			shown := host
			if strings.Contains(host, ":") {
				shown = "[" + host + "]"
			}
			return t.plain(net.JoinHostPort(host, "80"), shown)
		}
	}
	// Programs make the address of these spellings themselves, and send them as Host.
	for id, host := range map[string]string{"decimal": "2852039166", "octal": "0251.0376.0251.0376", "hexadecimal": "0xa9fea9fe", "short": "169.254.43518"} {
		all["metadata."+id] = func(t *try) verdict { return t.plain("169.254.169.254:80", host) }
	}
	return all
}

// machine tries a port of addresses.
func (t *try) machine(port int, hosts []string) verdict {
	return each(hosts, func(h string) verdict { return t.plain(net.JoinHostPort(h, strconv.Itoa(port)), h) })
}

func mapped(hosts []string) []string {
	var all []string
	for _, h := range hosts {
		if ip := net.ParseIP(h).To4(); ip != nil {
			// Written so that it stays an address of version 6.
			all = append(all, "64:ff9b::"+h, "::"+h)
		}
	}
	return all
}

func (t *try) api() verdict {
	if t.plan.API == 0 {
		return untried("the port of the API is not known")
	}
	return each(t.plan.Hosts, func(h string) verdict {
		return t.says(net.JoinHostPort(h, strconv.Itoa(t.plan.API)), "GET /v1/health HTTP/1.1\r\nHost: "+h+"\r\nConnection: close\r\n\r\n")
	})
}

func (t *try) common() verdict {
	var addrs []string
	for _, h := range t.plan.Hosts {
		for _, port := range []string{"22", "111", "2375", "2376", "5432", "6443", "10250"} {
			addrs = append(addrs, net.JoinHostPort(h, port))
		}
	}
	return each(addrs, func(a string) verdict { return t.plain(a, a) })
}

// unixSocket connects to a Unix socket; one that begins with @ is abstract.
func unixSocket(name string) verdict {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return held("socket: %v", err)
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: name}); err != nil {
		return held("%s: %v", name, os.NewSyscallError("connect", err))
	}
	return fell("%s: connected", name)
}
