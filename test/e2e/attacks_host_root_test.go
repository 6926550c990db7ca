//go:build root

package e2e

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/api"
)

// No address of the machine and of another sandbox is reached, though the
// policy names each; of the host's ports only the one that the operator opened
// is (B08).
func TestEveryAddressOfTheHost(t *testing.T) {
	c := newClients(t)
	host, six := serve(t, "0.0.0.0:0"), serve(t, "[::]:0")
	control := serverPort(t, strings.TrimPrefix(c.e.URL, "http://"))
	hosts := []string{"198.18.0.1", "198.18.0.2", "198.18.0.3"} // the gateway, and where a neighbour may think it is
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok {
			hosts = append(hosts, ip.IP.String())
		}
	}
	rules := fmt.Sprintf("      - {host: far.test, ports: [%d]}\n", c.far.port)
	urls := ""
	for _, h := range hosts {
		rules += fmt.Sprintf("      - {host: '%s', ports: [%d, %d, %d, 8000]}\n", h, host.port, six.port, control)
		for _, port := range []int{host.port, six.port, control, 8000} {
			urls += fmt.Sprintf(" 'http://%s/v1/health'", net.JoinHostPort(h, fmt.Sprint(port)))
		}
	}
	b := c.box(t, spliced, rules)
	neighbour := c.box(t, spliced, rules)
	if _, err := c.e.Client.Exec(t.Context(), neighbour.id, api.ExecRequest{Argv: []string{"/usr/bin/python3", "-m", "http.server", "8000"}}); err != nil {
		t.Fatal(err)
	}
	neighbour.run(t, "neighbour", `for i in $(seq 600); do curl -s -o /dev/null http://127.0.0.1:8000/ && exit; done; exit 1`)
	out, _, records := b.run(t, "host", "curl -s -g -m 20 --connect-timeout 4 -Z"+urls+"; echo; curl -sS FAR/granted")
	if strings.Contains(out, "hello from") || strings.Contains(out, "boot") || strings.Contains(out, "Directory listing") || !strings.Contains(out, "far says GET /granted") {
		t.Errorf("prints %q", out)
	}
	for _, r := range records {
		if r.Verdict == "allowed" && r.Name != "far.test" {
			t.Errorf("allowed: %+v", r)
		}
	}
	if n := host.conns.Load() + six.conns.Load(); n != 0 {
		t.Errorf("%d connections reached the host's services", n)
	}
}
