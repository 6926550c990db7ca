package task

// SettingCarry says how requests carry what is minted: CarryHeader or CarryGit.
const SettingCarry = "carry"

// How requests carry what is minted, for kinds that leave a choice.
const (
	CarryHeader = "header"
	CarryGit    = "git"
)

// Carried is the kind whose way to stand in a request the lease's credential has:
// what is minted is carried as if it had been given.
func (l Lease) Carried() string {
	switch l.Kind {
	case "":
		return KindHeader
	case KindGitHubApp, KindOAuth, KindExchange:
		if l.Settings[SettingCarry] == CarryGit {
			return KindGit
		}
		return KindHeader
	case KindClaudeLogin:
		return KindHeader
	case KindAWSWeb:
		return KindAWS
	}
	return l.Kind
}
