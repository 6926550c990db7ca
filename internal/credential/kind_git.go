package credential

import (
	"regexp"
	"strings"

	"github.com/cofferdam/cofferdam/internal/task"
)

// gitUser is what forges take for tokens, or don't look at.
const gitUser = "x-access-token"

const maxRepositories = 64

// gitKind is a token or password for git over https: Basic, for git's own
// requests and those of Git LFS alone.
func gitKind() kind {
	return kind{
		name: task.KindGit, fault: valueFault,
		settings: map[string]setting{
			task.SettingUser:       {lent: true, preset: gitUser, fault: gitUserFault},
			task.SettingRepository: {lent: true, fault: repositoriesFault},
			task.SettingPush:       {lent: true, preset: "no", fault: yesOrNo},
		},
	}
}

var (
	gitUserPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}$`)
	// Repositories are compared as they are sent, so nothing may need escaping.
	repositoryPart = regexp.MustCompile(`^[A-Za-z0-9_~][A-Za-z0-9._~+-]*$`)
)

func gitUserFault(name string) string {
	if !gitUserPattern.MatchString(name) {
		return "must be letters, digits and ._@+- only"
	}
	return ""
}

func yesOrNo(text string) string {
	if text != "yes" && text != "no" {
		return "must be yes or no"
	}
	return ""
}

// repositoriesFault says what is wrong with a list of repositories: paths such
// as owner/name without ".git", "*" for one segment, a last "**" for any rest.
func repositoriesFault(text string) string {
	list := strings.Split(text, ",")
	if len(list) > maxRepositories {
		return "names more than 64 repositories"
	}
	for _, one := range list {
		one = strings.TrimSpace(one)
		if strings.HasSuffix(one, ".git") {
			return "must name repositories without .git at the end; both spellings are allowed then"
		}
		segments := strings.Split(one, "/")
		for i, s := range segments {
			switch {
			case s == "*", s == "**" && i == len(segments)-1 && i > 0, repositoryPart.MatchString(s):
			case s == "**":
				return `may have "**" only as the last segment, beneath something that is named`
			default:
				return `must be repositories such as owner/name, separated by commas; "*" stands for one segment`
			}
		}
	}
	return ""
}
