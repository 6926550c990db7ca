package credential

import "github.com/cofferdam/cofferdam/internal/task"

// oidcKind is the run's own token for one audience: made for each request that
// carries it, from nothing that the vault keeps.
func oidcKind() kind {
	return kind{
		name: task.KindOIDC, header: true, minted: true, once: true, fault: noValueFault,
		settings: map[string]setting{task.SettingAudience: {required: true, lent: true, fault: task.AudienceFault}},
	}
}

// noValueFault refuses every value.
func noValueFault(value string) string {
	if value != "" {
		return "is made for each request from who the run is; give none"
	}
	return ""
}
