package audit

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/cofferdam/cofferdam/internal/task"
)

// evidenceHeader is the first line of the text that is signed for an archive of
// evidence. Neither a receipt nor a checkpoint ever looks so.
const evidenceHeader = "cofferdam-evidence/1"

func evidenceText(origin, sandbox string, manifest task.Digest) string {
	return evidenceHeader + "\n" + origin + "\n" + sandbox + "\n" + string(manifest) + "\n"
}

// SignEvidence signs the digest of the manifest of what was taken from a sandbox.
func (l *Log) SignEvidence(sandbox string, manifest task.Digest) (string, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.key.SignEvidence(sandbox, manifest)
}

// SignEvidence signs as Log.SignEvidence does.
func (k *Key) SignEvidence(sandbox string, manifest task.Digest) (string, error) {
	if !validDigest(manifest) {
		return "", errors.New("evidence: the digest is none")
	}
	return k.sign(evidenceText(k.Origin(), sandbox, manifest))
}

// Origin is the installation's name.
func (l *Log) Origin() string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.key.Origin()
}

// VerifyEvidence checks what SignEvidence gave with the installation's public keys,
// one a line, and names the key that signed.
func VerifyEvidence(vkeys, msg, sandbox string, manifest task.Digest) (key string, err error) {
	set, err := newKeySet(vkeys)
	if err != nil {
		return "", err
	}
	text, signer, bad := openNote(set, msg)
	if bad != nil {
		return "", fmt.Errorf("evidence: %w", bad)
	}
	if text != evidenceText(set.Name(), sandbox, manifest) {
		return "", errors.New("evidence: the signature is of another manifest or another sandbox")
	}
	return signer, nil
}

// Account writes the records of a task, a JSON document a line, and gives its
// receipt; nil: it has none yet.
func (l *Log) Account(ctx context.Context, taskID string, w io.Writer) (receipt []byte, err error) {
	err = l.store.Read(ctx, func(v View) error {
		if receipt, err = v.Receipt(taskID); err != nil {
			return err
		}
		return v.RecordsOf(taskID, func(r Record) error {
			raw, err := canonical(r)
			if err != nil {
				return err
			}
			_, err = w.Write(append(raw, '\n'))
			return err
		})
	})
	return receipt, err
}
