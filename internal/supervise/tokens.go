package supervise

import (
	"context"
	"errors"
	"time"
)

// tokenPace is how often this machine's tokens are looked at.
const tokenPace = 300 * time.Millisecond

// handOn gives this machine's tokens to who uses them whenever they were made anew,
// until ctx ends: to the worker, to the gateway and to the command line.
func (s *supervisor) handOn(ctx context.Context) {
	last, _ := s.layout.tokens()
	for pauseFor(ctx, tokenPace) == nil {
		now, err := s.layout.tokens()
		if err != nil || now == last {
			continue
		}
		_, note, err := s.layout.writeClientFiles(s.url)
		err = errors.Join(s.layout.copyWorkerToken(), s.layout.copyGatewayToken(s.users.gateway), err)
		if err != nil {
			s.log.Error("new tokens were not handed on; it is tried again", "error", err)
			continue
		}
		if note != nil {
			s.log.Warn("the configuration of the command line was not written", "error", note)
		}
		s.log.Info("handed new tokens on")
		last = now
	}
}

// tokens are this machine's, together.
func (l Layout) tokens() (all [3]string, err error) {
	for i, name := range []string{"admin", "worker", "gateway"} {
		token, terr := l.token(name)
		all[i], err = token, errors.Join(err, terr)
	}
	return all, err
}
