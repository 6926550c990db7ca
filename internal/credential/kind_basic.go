package credential

import (
	"strings"

	"github.com/cofferdam/cofferdam/internal/task"
)

// basicKind is a password of Basic authentication (RFC 7617). The user's name is
// no secret, and may be empty.
func basicKind() kind {
	return kind{
		name: task.KindBasic, fault: valueFault,
		settings: map[string]setting{task.SettingUser: {lent: true, fault: userFault}},
	}
}

func userFault(name string) string {
	if len(name) > 128 {
		return "longer than 128 characters"
	}
	if strings.Contains(name, ":") {
		return "has a colon, which would end it; give the name alone and the password as the value"
	}
	for _, c := range []byte(name) {
		if c < ' ' || c >= 0x7f {
			return "must be printable ASCII"
		}
	}
	return ""
}
