package gemini

import (
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

type dialect struct{}

func (d *dialect) Line(line []byte, emit func(task.AgentEvent)) bool { return false }

func (d *dialect) End(exit int, notes string) stage.HarnessEnd { return stage.HarnessEnd{} }
