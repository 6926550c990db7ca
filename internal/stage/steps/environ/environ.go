// Package environ says which variables tell a command of the credentials that
// its stage was lent: the placeholder of each, and what the tools of its kind
// read besides. Nothing in it is secret, and it is pure: the same leases and
// rules give the same variables, so that a command that is started again after a
// crash is the same command.
package environ

import (
	"github.com/cofferdam/cofferdam/internal/task"
)

// Of gives the variables, as NAME=value, of leases made for the rules of a
// stage. Where two leases would set one variable the first keeps it, and what
// belongs together comes from one lease.
func Of(lent []task.Lent, rules []task.Rule) []string {
	var env []string
	had, kinds := map[string]bool{}, map[string]bool{}
	for _, l := range lent {
		first := !kinds[family(l.Kind)]
		kinds[family(l.Kind)] = true
		for _, v := range of(l, rules, first) {
			if !had[v.name] {
				had[v.name] = true
				env = append(env, v.name+"="+v.value)
			}
		}
	}
	return append(env, git(lent)...)
}

// family is the kind that sets the same variables.
func family(kind string) string {
	if kind == task.KindAWSWeb {
		return task.KindAWS
	}
	return kind
}

type variable struct{ name, value string }

// of gives those of one lease: by its kind, or its placeholder alone. first says
// that it is the first of its kind or of one that sets the same.
func of(l task.Lent, rules []task.Rule, first bool) []variable {
	switch l.Kind {
	case task.KindPostgres:
		return postgres(l, rules, first)
	case task.KindAWS, task.KindAWSWeb:
		return aws(l, first)
	}
	if l.OfIdentity() {
		return []variable{{task.TokenURLEnv, task.TokenURL}, {task.TokenEnv, l.Placeholder}}
	}
	if l.Env == "" {
		return nil
	}
	return []variable{{l.Env, l.Placeholder}}
}
