package audit

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/cofferdam/cofferdam/internal/task"
)

// receiptHeader is the first line of the text a receipt's note signs. A
// checkpoint's first line is the installation's name, which never looks so.
const receiptHeader = "cofferdam-receipt/1"

// sign signs text, whose last byte is a newline, as a note.
func (k *Key) sign(text string) (string, error) {
	msg, err := note.Sign(&note.Note{Text: text}, k.signer)
	if err != nil {
		return "", fmt.Errorf("sign: %w", err)
	}
	return string(msg), nil
}

// openNote returns the text of a note that one of the keys, and no other, has
// signed, and which. It refuses every spelling of the note but the one that sign
// writes. A failure is a finding without a place.
func openNote(k *keySet, msg string) (text, signer string, bad *Finding) {
	const separator = "\n\n\u2014 "
	i := strings.LastIndex(msg, separator)
	if i < 0 || !strings.HasSuffix(msg, "\n") {
		return "", "", found(Malformed, "it is not a signed note")
	}
	var line string
	text, line = msg[:i+1], strings.TrimSuffix(msg[i+len(separator):], "\n")
	name, encoded, ok := strings.Cut(line, " ")
	raw, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if !ok || err != nil || len(raw) < 5 || strings.Contains(line, "\n") {
		return "", "", found(Malformed, "its signature line is damaged")
	}
	v := k.find(name, binary.BigEndian.Uint32(raw))
	if v == nil {
		return "", "", found(WrongKey, fmt.Sprintf("it was signed by the key %q (%08x), not by %s", name, binary.BigEndian.Uint32(raw), k))
	}
	n, err := note.Open([]byte(msg), note.VerifierList(v))
	var invalid *note.InvalidSignatureError
	switch {
	case errors.As(err, &invalid):
		return "", "", found(Altered, "its signature does not fit its text")
	case err != nil:
		return "", "", found(Malformed, "it is not a signed note")
	case n.Text != text || len(n.Sigs) != 1 || len(n.UnverifiedSigs) != 0:
		return "", "", found(Malformed, "it carries other signatures")
	}
	return n.Text, keyName(v.KeyHash()), nil
}

// receiptText is what the signature of a receipt covers: which task, and its
// body by digest.
func receiptText(origin, taskID string, body task.Digest) string {
	return receiptHeader + "\n" + origin + "\n" + taskID + "\n" + string(body) + "\n"
}

// Checkpoint is what the key's holder said about the whole account at one
// moment: the log's size and root, and the chain's count and head. One that is
// kept elsewhere shows later whether the account was cut or rewritten.
type Checkpoint struct {
	Origin  string      `json:"origin"`
	Size    int64       `json:"size"` // receipts in the log
	Root    tlog.Hash   `json:"root"`
	Records int64       `json:"records"` // records in the installation's chain
	Head    task.Digest `json:"head"`    // hash of the last of them
	Key     string      `json:"key"`     // the key that signed it, by its hash; not a part of the signed text
}

// text is the checkpoint as C2SP tlog-checkpoint has it, with one extension
// line for the chain of records.
func (c Checkpoint) text() string {
	return fmt.Sprintf("%s\n%d\n%s\nrecords %d %s\n", c.Origin, c.Size, c.Root, c.Records, c.Head)
}

// ParseCheckpoint reads a signed checkpoint, as in a receipt or at the end of an
// export, and checks its signature.
func ParseCheckpoint(vkeys string, msg []byte) (Checkpoint, error) {
	v, err := newKeySet(vkeys)
	if err != nil {
		return Checkpoint{}, err
	}
	c, bad := openCheckpoint(v, string(msg))
	if bad != nil {
		return Checkpoint{}, fmt.Errorf("checkpoint: %w", bad)
	}
	return c, nil
}

func openCheckpoint(v *keySet, msg string) (Checkpoint, *Finding) {
	text, signer, bad := openNote(v, msg)
	if bad != nil {
		return Checkpoint{}, bad
	}
	c, ok := parseCheckpoint(text)
	if !ok || c.Origin != v.Name() {
		return Checkpoint{}, found(Malformed, "the signed text is not a checkpoint of this installation")
	}
	c.Key = signer
	return c, nil
}

func parseCheckpoint(text string) (c Checkpoint, ok bool) {
	lines := strings.Split(text, "\n")
	if len(lines) != 5 {
		return c, false
	}
	chain := strings.Split(lines[3], " ")
	if len(chain) != 3 {
		return c, false
	}
	var err1, err2, err3 error
	c.Origin = lines[0]
	c.Size, err1 = strconv.ParseInt(lines[1], 10, 64)
	c.Root, err2 = tlog.ParseHash(lines[2])
	c.Records, err3 = strconv.ParseInt(chain[1], 10, 64)
	c.Head = task.Digest(chain[2])
	if errors.Join(err1, err2, err3) != nil || c.Size < 0 || c.Records < 0 || !validDigest(c.Head) {
		return c, false
	}
	return c, c.text() == text
}
