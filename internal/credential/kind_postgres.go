package credential

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/cofferdam/cofferdam/internal/task"
)

const (
	postgresPort = 5432
	// postgresName is the longest name of a role or a database: a server cuts
	// longer ones off, so that they would be others'.
	postgresName = 63
)

// postgresKind is a login of PostgreSQL: a role, the databases it may be used
// for, and its password. The gateway logs in with it; the sandbox logs in at the
// gateway with the placeholder.
func postgresKind() kind {
	return kind{
		name: task.KindPostgres,
		port: postgresPort,
		settings: map[string]setting{
			"user":     {required: true, lent: true, fault: postgresNameFault},
			"database": {required: true, lent: true, fault: postgresListFault},
		},
		fault: passwordFault,
		whole: func(r request) error {
			for field, n := range map[string]int{"methods": len(r.Methods), "paths": len(r.Paths)} {
				if n > 0 {
					return invalid(field, "a login of PostgreSQL has none; what it may do is what its role may do")
				}
			}
			return nil
		},
	}
}

func postgresNameFault(name string) string {
	switch {
	case len(name) > postgresName:
		return fmt.Sprintf("longer than %d bytes, which a server would cut off", postgresName)
	case !utf8.ValidString(name):
		return "is not UTF-8"
	case strings.TrimSpace(name) != name:
		return "begins or ends with a space"
	}
	return ""
}

// postgresListFault judges one name of a database or several, with commas
// between them.
func postgresListFault(list string) string {
	for name := range strings.SplitSeq(list, ",") {
		if name == "" {
			return "has an empty name; write one database, or several as a,b"
		}
		if text := postgresNameFault(name); text != "" {
			return fmt.Sprintf("%q %s", name, text)
		}
	}
	return ""
}

// passwordFault says what is wrong with a password without telling any of it.
// Printable ASCII is the same before and after SASLprep (RFC 4013), so that
// client and server can't prepare it differently.
func passwordFault(value string) string {
	switch {
	case value == "":
		return "empty"
	case len(value) > maxValue:
		return fmt.Sprintf("longer than %d bytes", maxValue)
	case len(value) < minValue:
		return fmt.Sprintf("shorter than %d bytes; give the role a longer password", minValue)
	case strings.Contains(value, word):
		return "is a placeholder and not a password"
	case strings.TrimSpace(value) != value:
		return "begins or ends with a space or a line break; give the password alone"
	}
	for _, c := range []byte(value) {
		if c < ' ' || c >= 0x7f {
			return "has a character that is not printable ASCII; give the role another password"
		}
	}
	return ""
}

// protocolFault says why a rule's protocol does not go with a credential's kind;
// empty: it does.
func protocolFault(c task.Credential, rule task.Rule) string {
	switch login := c.Kind == task.KindPostgres; {
	case login && rule.Protocol != task.ProtocolPostgres:
		return fmt.Sprintf("credential %q is a login of PostgreSQL; write protocol: postgres", c.Name)
	case !login && rule.Protocol == task.ProtocolPostgres:
		return fmt.Sprintf("credential %q is of kind %s and no login of PostgreSQL", c.Name, c.Kind)
	}
	return ""
}
