package credential

import (
	"strings"

	"github.com/cofferdam/cofferdam/internal/task"
)

// queryKind is a key that one parameter of the query carries. Servers put
// queries into their logs: a header is better where there is one.
func queryKind() kind {
	return kind{
		name: task.KindQuery, fault: valueFault,
		settings: map[string]setting{task.SettingParameter: {required: true, lent: true, fault: parameterFault}},
	}
}

// parameterFault says what is wrong with a parameter's name: it is written as it
// is, so it must mean the same to every server.
func parameterFault(name string) string {
	if len(name) > 64 {
		return "longer than 64 characters"
	}
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-_.~$", c) >= 0:
		default:
			return "may have letters, digits and -_.~$ only, so that it is written in one way"
		}
	}
	return ""
}
