package steps

import (
	"context"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// farewell bounds how long a harness whose turn is over may take to end.
const farewell = 10 * time.Second

// askAgain is the pace of giving input that was not taken.
const askAgain = 50 * time.Millisecond

// mouth is what a listener says to its command. The listener's mu guards it.
type mouth struct {
	turn  sync.Mutex // held while words are taken over, so that they stay in order
	words []byte     // to be said, from offset said on
	said  int64      // bytes that were taken
	done  bool       // nothing follows the words
	over  chan struct{}
	news  chan struct{} // holds one when there is something to say
}

// speak begins to say what the reader wants said, and ends a command that stays
// after the last word. The function it returns ends that.
//
// After a restart everything is said again from the first byte on. The sandbox
// drops what it took before, so the command sees each byte once.
func (l *listener) speak(spoken bool) (hush func()) {
	if _, ok := l.reader.(stage.HarnessSpeaker); !ok || !spoken {
		return func() {}
	}
	l.mouth.over, l.mouth.news = make(chan struct{}), make(chan struct{}, 1)
	l.answer()
	ctx, cancel := context.WithCancel(l.ctx)
	var busy sync.WaitGroup
	busy.Go(func() { l.utter(ctx) })
	busy.Go(func() { l.see(ctx) })
	return func() {
		cancel()
		busy.Wait()
	}
}

// answer takes over what the reader says to what it has read.
func (l *listener) answer() {
	s, ok := l.reader.(stage.HarnessSpeaker)
	if !ok || l.mouth.news == nil {
		return
	}
	l.mouth.turn.Lock()
	defer l.mouth.turn.Unlock()
	words, done := s.Say(), s.Done()
	l.mu.Lock()
	l.mouth.words = append(l.mouth.words, words...)
	first := done && !l.mouth.done
	l.mouth.done = done
	l.mu.Unlock()
	if first {
		close(l.mouth.over)
	}
	select {
	case l.mouth.news <- struct{}{}:
	default:
	}
}

// utter gives the command its input until the last of it was taken.
func (l *listener) utter(ctx context.Context) {
	for {
		l.mu.Lock()
		in := sandbox.Input{Offset: l.mouth.said, Data: l.mouth.words[:min(len(l.mouth.words), sandbox.MaxInput)]}
		in.Close = l.mouth.done && len(in.Data) == len(l.mouth.words)
		l.mu.Unlock()
		if len(in.Data) == 0 && !in.Close {
			select {
			case <-ctx.Done():
				return
			case <-l.mouth.news:
			}
			continue
		}
		taken, err := l.run.Sandboxes.Input(ctx, l.run.row.Sandbox, l.command, in)
		n := min(max(taken.Offset-in.Offset, 0), int64(len(in.Data)))
		l.mu.Lock()
		l.mouth.words, l.mouth.said = l.mouth.words[n:], l.mouth.said+n
		l.mu.Unlock()
		if err == nil && !taken.Open {
			return // closed by us, or by a program that reads no more
		}
		if err != nil || n == 0 {
			// The command may not have begun yet, its machine may be away, or it does
			// not read. Whether that is the end is decided where its output is read.
			if !pause(ctx, askAgain) {
				return
			}
		}
	}
}

// see ends the command when its turn is over and it stays.
func (l *listener) see(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-l.mouth.over:
	}
	for wait := min(farewell, l.run.plan.CommandTime(task.Agent)/10); pause(ctx, wait); wait = time.Second {
		if err := l.run.Sandboxes.Kill(ctx, l.run.row.Sandbox, l.command); err != nil && ctx.Err() == nil {
			l.run.Logger.Warn("an agent whose turn is over could not be ended yet", "task", l.run.in.Task, "err", err)
		}
	}
}

// pause waits, and says whether ctx still holds.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
