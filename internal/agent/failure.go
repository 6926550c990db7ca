package agent

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/cofferdam/cofferdam/internal/task"
)

// ModelFailure is the failure for an HTTP status of the model's server. said is
// what the harness wrote of it.
func ModelFailure(status int, said string) *task.Failure {
	said, _ = Clip(said, maxResult)
	switch {
	case status == 429:
		return task.Fail(task.ModelLimited, "the model's server limits the requests (429), and the agent gave up: "+said, nil)
	case status >= 500:
		return task.Fail(task.ModelFaulty, "the model's server failed ("+strconv.Itoa(status)+"), and the agent gave up: "+said, nil)
	case status == 408:
		return silent(said)
	case status >= 400:
		return task.Fail(task.ModelRefused, "the model's server refused the request ("+strconv.Itoa(status)+"): "+said, nil)
	}
	return nil
}

func silent(said string) *task.Failure {
	return task.Fail(task.ModelSilent, "the model's server said nothing in time: "+said, nil)
}

// The ways in which harnesses write of statuses and of broken answers. They are
// matched in what a harness says of its own failure, never in what a model or a
// tool said.
var (
	statusPattern = regexp.MustCompile(`(?i)(?:API Error:?|status(?: code)?:?|"code":|"?status"?:|HTTP(?:/[0-9.]+)?|error code:?|last status:) *"?([1-5][0-9]{2})\b`)
	silentPattern = regexp.MustCompile(`(?i)timed? ?out|idle timeout|timeout waiting|no response|ETIMEDOUT`)
	emptyPattern  = regexp.MustCompile(`(?i)empty (?:or malformed )?(?:response|answer|stream|reply)|no content|ended without|without (?:producing|sending|any)|stream (?:ended|closed|disconnected)[^.]* before|closed before`)
	brokenPattern = regexp.MustCompile(`(?i)stream (?:disconnected|error|closed)|invalid (?:json|stream|response)|malformed|unexpected (?:token|end|eof)|parse error|JSON|connection (?:closed|reset|error|refused)|ECONN|socket|fetch failed|network error|internal server error|high demand|temporary errors|overloaded|unreachable|terminated`)
)

// Said is the failure that a harness's own words about its end tell of; nil
// when they tell of none of the model's server.
func Said(said string) *task.Failure {
	if m := statusPattern.FindStringSubmatch(said); m != nil {
		status, _ := strconv.Atoi(m[1]) // three digits
		if f := ModelFailure(status, said); f != nil {
			return f
		}
	}
	short, _ := Clip(strings.TrimSpace(said), maxResult)
	switch {
	case silentPattern.MatchString(said):
		return silent(short)
	case brokenPattern.MatchString(said), emptyPattern.MatchString(said):
		return task.Fail(task.ModelFaulty, "the model's server gave an answer that can't be used: "+short, nil)
	}
	return nil
}

// Failed is the failure of a harness: what it says of the model's server when
// it says so, else its own.
func Failed(exit int, said string) *task.Failure {
	if f := Said(said); f != nil {
		return f
	}
	said, _ = Clip(strings.TrimSpace(said), maxResult)
	text := "the agent failed"
	if exit >= 0 {
		text += " with exit code " + strconv.Itoa(exit)
	}
	if said != "" {
		text += ": " + said
	}
	return task.Fail(task.AgentFailed, text, nil)
}
