package environ

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/cofferdam/cofferdam/internal/task"
)

// bundle is where a sandbox has the certificates that its programs trust, the
// gateway's among them (guest/agent/trust).
const bundle = "/etc/ssl/certs/ca-certificates.crt"

// postgres are the variables that libpq and most other drivers read
// (PostgreSQL 17, "Environment Variables"); the variable of the credential's
// choice gets the same as a URI, also where another login came first. A
// credential for a pattern of hosts alone says no host.
func postgres(l task.Lent, rules []task.Rule, first bool) []variable {
	host, port := server(l, rules)
	database, _, _ := strings.Cut(l.Settings["database"], ",")
	var env []variable
	if first && host != "" {
		env = append(env, variable{"PGHOST", host})
	}
	if first {
		env = append(env,
			variable{"PGPORT", strconv.Itoa(int(port))}, variable{"PGUSER", l.Settings["user"]}, variable{"PGDATABASE", database},
			variable{"PGPASSWORD", l.Placeholder}, variable{"PGSSLMODE", "verify-full"}, variable{"PGSSLROOTCERT", bundle},
		)
	}
	if l.Env != "" && host != "" {
		u := url.URL{
			Scheme: "postgresql", User: url.UserPassword(l.Settings["user"], l.Placeholder),
			Host: authority(host) + ":" + strconv.Itoa(int(port)), Path: "/" + database,
			RawQuery: "sslmode=verify-full&sslrootcert=" + url.QueryEscape(bundle),
		}
		env = append(env, variable{l.Env, u.String()})
	}
	return env
}

// server is the first host and port that a rule and the lease agree on: the
// rule's host where it is one, else the lease's.
func server(l task.Lent, rules []task.Rule) (host string, port uint16) {
	for _, r := range rules {
		if r.Credential != l.Credential || r.Protocol != task.ProtocolPostgres {
			continue
		}
		for _, p := range r.Ports {
			if !slices.Contains(l.Ports, p) {
				continue
			}
			for _, h := range append([]string{r.Host}, l.Hosts...) {
				if !strings.Contains(h, "*") {
					return h, p
				}
			}
			port = p
		}
	}
	return "", port
}

// authority is a host as a URI has it (RFC 3986 §3.2.2).
func authority(host string) string {
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}
