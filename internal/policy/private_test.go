package policy

import "testing"

func TestPrivate(t *testing.T) {
	const operator = "version: 1\nprivate:\n  - host: forge.corp.example\n    ports: [443, 8443]\n  - host: 10.0.0.7\n    ports: [443]\n"
	for _, c := range []struct {
		operator, host string
		port           uint16
		want           bool
	}{
		{operator, "forge.corp.example", 443, true},
		{operator, "FORGE.corp.example", 8443, true},
		{operator, "10.0.0.7", 443, true},
		{operator, "forge.corp.example", 80, false},
		{operator, "a.forge.corp.example", 443, false},
		{operator, "", 443, false},
		{"", "forge.corp.example", 443, false},
		{"private: yes", "forge.corp.example", 443, false},
	} {
		if got := Private(c.operator, c.host, c.port); got != c.want {
			t.Errorf("%q port %d: %v", c.host, c.port, got)
		}
	}
}
