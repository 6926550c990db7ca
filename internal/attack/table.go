package attack

import "slices"

// Checks are all of them, a family after the other.
func Checks() []Check {
	return slices.Concat(egressChecks(), dnsChecks(), metadataChecks(), hostChecks(), neighbourChecks(), kernelChecks(), filesChecks(), secretsChecks(),
		limitsChecks(), crowdChecks(), execChecks(), exportChecks(), credentialChecks(), smuggleChecks(), protectChecks())
}

func egressChecks() []Check {
	return []Check{
		{"egress.denied-name", Closed, "plain HTTP to a name that no rule allows"},
		{"egress.denied-name-tls", Closed, "TLS to a name that no rule allows"},
		{"egress.literal-address", Closed, "plain HTTP to an address instead of a name"},
		{"egress.literal-tls", Closed, "TLS to an address, without a name"},
		{"egress.literal-with-name", Closed, "TLS to an address, with an allowed name in its ClientHello"},
		{"egress.literal-host", Closed, "plain HTTP to an address, with an allowed name as Host"},
		{"egress.name-beneath", Closed, "a name beneath an allowed one"},
		{"egress.name-above", Closed, "a name that ends like an allowed one"},
		{"egress.other-port", Closed, "an allowed name on another port"},
		{"egress.smtp", Closed, "an allowed name on port 25"},
		{"egress.ssh", Closed, "an address on port 22"},
		{"egress.udp", Closed, "UDP to addresses outside"},
		{"egress.quic", Closed, "QUIC to addresses outside and to an allowed name"},
		{"egress.ntp", Closed, "asking clocks outside"},
		{"egress.icmp", Closed, "an echo of an address outside"},
		{"egress.raw-socket", Closed, "a raw socket"},
		{"egress.raw-socket-6", Closed, "a raw socket of IPv6"},
		{"egress.packet-socket", Closed, "a packet socket"},
		{"egress.sctp", Closed, "a socket of SCTP"},
		{"egress.vsock", Closed, "the machine by vsock"},
		{"egress.tap-device", Closed, "a network device of its own"},
		{"egress.proxy-on-gateway", Closed, "the gateway as a proxy, on the usual ports"},
		{"egress.relay", Closed, "a relay inside to a name that no rule allows"},
		{"egress.mixed", Closed, "200 connections, 20 at a time, half of them to a name that no rule allows"},
		{"egress.ipv6-global", Closed, "an address of IPv6"},
		{"egress.ipv6-local", Closed, "a local address of IPv6"},
		{"egress.ipv6-link", Closed, "a link-local address of IPv6"},
		{"egress.ipv6-mapped", Closed, "an address of IPv4 as one of IPv6"},
		{"egress.broadcast", Closed, "broadcast and multicast"},
		{"egress.websocket-upgrade", Closed, "a WebSocket to a name that no rule allows"},
		{"egress.connect-method", Closed, "CONNECT to a name that no rule allows"},
		{"egress.not-http", Closed, "bytes that are no HTTP to a name that no rule allows"},
		{"egress.sni-mismatch", Through, "TLS to an allowed name, with another in its ClientHello"},
		{"egress.sni-missing", Through, "TLS to an allowed name, with none in its ClientHello"},
		{"egress.sni-beneath", Through, "TLS to an allowed name, with one beneath it in its ClientHello"},
	}
}

func dnsChecks() []Check {
	return []Check{
		{"dns.unknown-name", Closed, "looking up a name with a secret in it"},
		{"dns.unknown-aaaa", Closed, "looking up a name with a secret in it, for IPv6"},
		{"dns.txt", Closed, "asking for its TXT records"},
		{"dns.https", Closed, "asking for its HTTPS records"},
		{"dns.mx", Closed, "asking for its MX records"},
		{"dns.srv", Closed, "asking for its SRV records"},
		{"dns.null", Closed, "asking for its NULL records"},
		{"dns.any", Closed, "asking for any of its records"},
		{"dns.transfer", Closed, "asking for its whole zone"},
		{"dns.udp-elsewhere", Closed, "asking other resolvers over UDP"},
		{"dns.tcp-elsewhere", Closed, "asking other resolvers over TCP"},
		{"dns.over-tls", Closed, "asking other resolvers over TLS's port"},
		{"dns.over-https", Closed, "asking other resolvers over HTTPS, by address"},
		{"dns.multicast", Closed, "asking by multicast DNS"},
		{"dns.link-multicast", Closed, "asking by LLMNR"},
		{"dns.netbios", Closed, "asking by NetBIOS"},
		{"dns.on-the-machine", Closed, "asking a resolver on the machine's addresses"},
		{"dns.port-53-of-the-machine", Closed, "asking port 53 of the machine's addresses"},
	}
}

func metadataChecks() []Check {
	return []Check{
		{"metadata.google-name", Closed, "the metadata service by its name"},
		{"metadata.tls", Named, "the metadata service over TLS"},
		{"metadata.aws", Named, "169.254.169.254, though a rule names it"},
		{"metadata.ecs", Named, "169.254.170.2, though a rule names it"},
		{"metadata.eks", Named, "169.254.170.23, though a rule names it"},
		{"metadata.alibaba", Named, "100.100.100.200, though a rule names it"},
		{"metadata.oracle", Named, "192.0.0.192, though a rule names it"},
		{"metadata.azure", Named, "168.63.129.16, though a rule names it"},
		{"metadata.aws-6", Named, "fd00:ec2::254, though a rule names it"},
		{"metadata.google-6", Named, "fd20:ce::254, though a rule names it"},
		{"metadata.mapped-6", Named, "the metadata address mapped into IPv6"},
		{"metadata.nat64", Named, "the metadata address behind NAT64's prefix"},
		{"metadata.6to4", Named, "the metadata address in 6to4's prefix"},
		{"metadata.compatible-6", Named, "the metadata address as an IPv4-compatible one"},
		{"metadata.decimal", Named, "the metadata address as one number"},
		{"metadata.octal", Named, "the metadata address in octal"},
		{"metadata.hexadecimal", Named, "the metadata address in hexadecimal"},
		{"metadata.short", Named, "the metadata address with three parts"},
	}
}

func hostChecks() []Check {
	return []Check{
		{"host.addresses", Closed, "a listener on every address of the machine"},
		{"host.api", Closed, "the installation's API on every address of the machine"},
		{"host.udp", Closed, "a listener for UDP on every address of the machine"},
		{"host.gateway-address", Closed, "the gateway's own address, on the listener's port"},
		{"host.docker-name", Closed, "the machine by the names that container engines give it"},
		{"host.own-name", Closed, "the machine by local names"},
		{"host.common-ports", Closed, "the usual ports of every address of the machine"},
		{"host.socket-path", Closed, "a Unix socket of the machine, by its path"},
		{"host.socket-climb", Closed, "the same, by paths that climb"},
		{"host.socket-abstract", Closed, "an abstract Unix socket of the machine"},
		{"host.docker-socket", Closed, "the sockets of container engines and of the system"},
		{"host.addresses-named", Named, "a listener on every address of the machine, though rules name each"},
		{"host.api-named", Named, "the API on every address of the machine, though rules name each"},
		{"host.mapped", Named, "the machine's addresses inside those of IPv6"},
	}
}

func neighbourChecks() []Check {
	return []Check{
		{"neighbour.addresses", Closed, "the neighbour's listener, by the addresses a neighbour may have"},
		{"neighbour.by-loopback", Closed, "the neighbour's listener, by loopback addresses"},
		{"neighbour.abstract", Closed, "the neighbour's abstract socket"},
		{"neighbour.answers", Outside, "whether the neighbour and the API answer after all floods"},
	}
}

func kernelChecks() []Check {
	return []Check{
		{"kernel.mount", Closed, "mounting a file system"},
		{"kernel.mount-proc", Closed, "mounting proc"},
		{"kernel.remount-usr", Closed, "mounting /usr again, to be written"},
		{"kernel.unmount-usr", Closed, "unmounting /usr"},
		{"kernel.pivot-root", Closed, "another root"},
		{"kernel.chroot", Closed, "chroot"},
		{"kernel.become-root", Closed, "becoming root"},
		{"kernel.setgroups", Closed, "joining root's group"},
		{"kernel.setuid-programs", Closed, "programs with the set-user-ID bit"},
		{"kernel.capabilities", Closed, "having capabilities"},
		{"kernel.new-privileges", Closed, "gaining privileges by a program"},
		{"kernel.load-module", Closed, "loading a module into the kernel"},
		{"kernel.load-module-file", Closed, "loading a module from a file"},
		{"kernel.remove-module", Closed, "removing a module from the kernel"},
		{"kernel.kexec", Closed, "starting another kernel"},
		{"kernel.reboot", Closed, "telling the machine how to restart"},
		{"kernel.bpf", Closed, "loading BPF"},
		{"kernel.perf", Closed, "watching by perf"},
		{"kernel.userfaultfd", Closed, "handling faults by userfaultfd"},
		{"kernel.io-uring", Closed, "system calls by io_uring"},
		{"kernel.open-by-handle", Closed, "opening a file by its handle"},
		{"kernel.fanotify", Closed, "watching every file by fanotify"},
		{"kernel.swap", Closed, "a swap file"},
		{"kernel.accounting", Closed, "process accounting"},
		{"kernel.ports", Closed, "the processor's ports"},
		{"kernel.iopl", Closed, "the processor's ports, all of them"},
		{"kernel.host-name", Closed, "changing the host's name"},
		{"kernel.clock", Closed, "setting the clock"},
		{"kernel.make-device", Closed, "making a device of a disk"},
		{"kernel.join-namespace", Closed, "the first process's namespaces"},
		{"kernel.user-namespace", Closed, "root of a user namespace: disks, files and settings of the machine"},
		{"kernel.trace-first", Closed, "tracing the first process"},
		{"kernel.end-first", Closed, "ending the first process"},
		{"kernel.stop-first", Closed, "stopping the first process"},
		{"kernel.host-process", Closed, "seeing processes of the machine"},
		{"kernel.raise-limits", Closed, "raising limits"},
		{"kernel.own-sentry", Closed, "being on the machine's kernel"},
	}
}

func filesChecks() []Check {
	return []Check{
		{"files.machine", Closed, "files of the machine, by their paths"},
		{"files.through-first", Closed, "files of the machine, through the first process's root"},
		{"files.through-self", Closed, "files of the machine, above its own root"},
		{"files.climb", Closed, "files of the machine, by a path that climbs"},
		{"files.through-folder", Closed, "files of the machine, from open descriptors"},
		{"files.by-link", Closed, "files of the machine, by a link"},
		{"files.write-usr", Closed, "writing where the machine's programs are"},
		{"files.write-usr-program", Closed, "changing the machine's programs"},
		{"files.write-first", Closed, "writing what is the first process's"},
		{"files.hard-link-usr", Closed, "a hard link to a program of the machine"},
		{"files.disks", Closed, "disks"},
		{"files.memory-devices", Closed, "memory of the machine"},
		{"files.other-devices", Closed, "other devices"},
		{"files.proc-settings", Closed, "settings of the kernel in /proc"},
		{"files.sysrq", Closed, "the kernel's trigger"},
		{"files.sys-settings", Closed, "settings of the kernel in /sys"},
		{"files.cgroup-release", Closed, "control groups"},
		{"files.security-keys", Closed, "keys and traces of the kernel"},
		{"files.sockets-of-ours", Closed, "a listener of the installation inside"},
		{"files.mounts-tell", Closed, "paths of the machine in what is mounted"},
	}
}

func secretsChecks() []Check {
	return []Check{
		{"secrets.first-environment", Closed, "the first process's environment"},
		{"secrets.first-threads", Closed, "the environments of its threads"},
		{"secrets.first-memory", Closed, "its memory"},
		{"secrets.first-memory-call", Closed, "its memory, by a system call"},
		{"secrets.first-auxiliary", Closed, "its auxiliary vector"},
		{"secrets.first-descriptors", Closed, "its descriptors"},
		{"secrets.first-program", Closed, "its program"},
		{"secrets.first-folder", Closed, "its folder"},
		{"secrets.take-descriptor", Closed, "taking a descriptor from it"},
		{"secrets.environments", Closed, "environments of every process"},
		{"secrets.arguments", Closed, "arguments of every process"},
		{"secrets.usual-places", Closed, "the places where secrets usually are"},
		{"secrets.inherited", Closed, "sockets that commands inherit"},
		{"secrets.core-dump", Closed, "a dump of the first process's memory"},
		{"secrets.shadow", Closed, "hashes of passwords"},
	}
}

func limitsChecks() []Check {
	return []Check{
		{"limits.processes", Small, "400 processes, where 120 are allowed"},
		{"limits.open-files", Small, "100,000 open files, where 256 are allowed"},
		{"limits.disk", Small, "700 MiB of files, where 64 MiB are allowed"},
		{"limits.shared", Small, "700 MiB in /dev/shm, where far fewer are allowed"},
		{"limits.sparse", Small, "asking for 10 GiB without writing"},
		{"limits.memory", Small, "700 MiB of memory, where 256 MiB are allowed"},
		{"limits.output", Outside, "a flood of output, where 1 MiB is allowed"},
		{"limits.time", Outside, "a loop without end that ignores signals, where 3 s are allowed"},
	}
}

func execChecks() []Check {
	return []Check{
		{"exec.as-root", Outside, "a command as root, where no policy allows it"},
		{"exec.without-token", Outside, "the API without a token"},
	}
}

func exportChecks() []Check {
	return []Check{
		{"export.link-read", Outside, "reading the machine's file through a link, by the Files API"},
		{"export.link-followed", Outside, "the same, with links followed"},
		{"export.folder-link", Outside, "the same, through a link to a folder"},
		{"export.deep-links", Outside, "the same, through forty links"},
		{"export.link-archive", Outside, "an archive of a folder with links, which must not hold the machine's files"},
		{"export.dots", Outside, "a path with .."},
		{"export.outside-roots", Outside, "a path outside of the folders that may be asked for"},
		{"export.write-through", Outside, "writing the machine's file through a link"},
		{"export.write-dangling", Outside, "making a file of the machine through a link to nothing"},
		{"export.upload-dots", Outside, "unpacking an archive with .. in its names"},
		{"export.upload-link", Outside, "unpacking a link, and a file through it"},
		{"export.pipe", Outside, "reading a named pipe, which must not hang"},
	}
}
