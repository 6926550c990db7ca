package guard

import "net/netip"

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

// never holds the metadata services of the clouds. 169.254.0.0/16 is there as
// a whole because clouds keep adding services to it.
var never = prefixes(
	"169.254.0.0/16",                        // EC2, GCE, Azure, OpenStack, ECS tasks
	"100.100.100.200/32",                    // Alibaba Cloud
	"192.0.0.192/32",                        // Oracle Cloud
	"168.63.129.16/32",                      // Azure's wire server
	"fd00:ec2::254/128", "fd20:ce::254/128", // EC2, GCE
	"fe80::a9fe:a9fe/128", "fd00:a9fe:a9fe::/128", // OpenStack
)

// private holds what is not on the public Internet (RFC 6890 and the
// registries of IANA), without the ranges for documentation.
var private = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12",
	"192.0.0.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4",
	"::/127", "64:ff9b:1::/48", "100::/64", "2001:2::/48", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
)

var (
	globalUnicast = netip.MustParsePrefix("2000::/3")
	nat64         = netip.MustParsePrefix("64:ff9b::/96") // RFC 6052
	nat64Local    = netip.MustParsePrefix("64:ff9b:1::/48")
	sixToFour     = netip.MustParsePrefix("2002::/16")       // RFC 3056
	teredo        = netip.MustParsePrefix("2001::/32")       // RFC 4380
	compatible    = netip.MustParsePrefix("::/96")           // RFC 4291 §2.5.5.1
	translated    = netip.MustParsePrefix("::ffff:0:0:0/96") // RFC 2765
)

var metadataNames = []string{
	"metadata.google.internal", "metadata.goog", "metadata", "instance-data", "instance-data.ec2.internal",
	"metadata.azure.internal", "metadata.azure.com", "metadata.tencentyun.com", "metadata.platformequinix.com",
	"metadata.packet.net", "metadata.oraclecloud.com",
}

// carried gives the IPv4 addresses that an IPv6 address stands for or carries.
func carried(addr netip.Addr) []netip.Addr {
	if !addr.Is6() || addr.Is4In6() {
		return nil
	}
	b := addr.As16()
	v4 := func(i int) netip.Addr { return netip.AddrFrom4([4]byte(b[i : i+4])) }
	addr = addr.WithZone("")
	var out []netip.Addr
	switch {
	case nat64.Contains(addr), compatible.Contains(addr), translated.Contains(addr):
		out = append(out, v4(12))
	case nat64Local.Contains(addr):
		// RFC 6052 §2.2: a /48 holds the address around octet 8, a /96 at the end.
		out = append(out, v4(12), netip.AddrFrom4([4]byte{b[6], b[7], b[9], b[10]}))
	case sixToFour.Contains(addr):
		out = append(out, v4(2))
	case teredo.Contains(addr):
		out = append(out, v4(4), netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]}))
	}
	if b[8]&^0x03 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe { // ISATAP, RFC 5214
		out = append(out, v4(12))
	}
	return out
}
