package audit

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"golang.org/x/mod/sumdb/tlog"
)

// exportFormat names the export's format.
const exportFormat = "cofferdam-audit/1"

// line is one line of an export: first the header, then every record, then
// every receipt, then one checkpoint. Each is canonical JSON.
type line struct {
	Type       string          `json:"type"` // "header", "record", "receipt", "checkpoint"
	Format     string          `json:"format,omitempty"`
	Origin     string          `json:"origin,omitempty"`
	Record     *Record         `json:"record,omitempty"`
	Receipt    json.RawMessage `json:"receipt,omitempty"`
	Checkpoint string          `json:"checkpoint,omitempty"`
}

// Export writes the whole account as JSON lines, ending with a checkpoint signed
// now. It is one view: what is appended meanwhile is not in it.
func (l *Log) Export(ctx context.Context, w io.Writer) error {
	out := bufio.NewWriter(w)
	write := func(v line) error {
		raw, err := canonical(v)
		if err != nil {
			return err
		}
		_, err = out.Write(append(raw, '\n'))
		return err
	}
	// The key and the view belong together; the rest may take a reader's time.
	l.mu.RLock()
	unlock := sync.OnceFunc(l.mu.RUnlock)
	defer unlock()
	err := l.store.Read(ctx, func(v View) error {
		key := l.key
		if _, err := v.Leaves(); err != nil {
			return err
		}
		unlock()
		if err := write(line{Type: "header", Format: exportFormat, Origin: key.Origin()}); err != nil {
			return err
		}
		if err := v.Records(func(r Record) error { return write(line{Type: "record", Record: &r}) }); err != nil {
			return err
		}
		if err := v.Receipts(func(raw []byte) error { return write(line{Type: "receipt", Receipt: raw}) }); err != nil {
			return err
		}
		note, err := key.checkpoint(v)
		if err != nil {
			return err
		}
		return write(line{Type: "checkpoint", Checkpoint: note})
	})
	if err != nil {
		return err
	}
	return out.Flush()
}

// Checkpoint signs the account as it is now. Keep it elsewhere: with it a later
// export that was cut or rewritten shows.
func (l *Log) Checkpoint(ctx context.Context) (note string, err error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	err = l.store.Read(ctx, func(v View) error {
		note, err = l.key.checkpoint(v)
		return err
	})
	return note, err
}

func (k *Key) checkpoint(v View) (string, error) {
	leaves, err := v.Leaves()
	if err != nil {
		return "", err
	}
	root, err := tlog.TreeHash(leaves, v)
	if err != nil {
		return "", broken("the log's hashes can't be read", err)
	}
	last, err := lastRecord(v.Last())
	if err != nil {
		return "", err
	}
	c := Checkpoint{Origin: k.Origin(), Size: leaves, Root: root, Records: last.Seq, Head: last.Hash}
	note, err := k.sign(c.text())
	if err != nil {
		return "", fmt.Errorf("checkpoint: %w", err)
	}
	return note, nil
}
