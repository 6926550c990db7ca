package temporal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/protobuf/proto"
)

// encoding marks payloads that are sealed.
const encoding = "binary/encrypted"

// errPlain refuses what did not come through this codec.
var errPlain = errors.New("the engine holds a payload that is not sealed; it is refused")

// codec seals what the engine keeps with AES-256-GCM: the engine's file holds
// no task's content.
type codec struct {
	aead cipher.AEAD
	key  []byte // names the key, without telling it
}

func newCodec(key []byte) (*codec, error) {
	if len(key) != 32 {
		return nil, fmt.Errorf("engine key: %d bytes where 32 are needed", len(key))
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("engine key: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("engine key: %w", err)
	}
	sum := sha256.Sum256(append([]byte("cofferdam engine key name\n"), key...))
	return &codec{aead: aead, key: []byte(hex.EncodeToString(sum[:8]))}, nil
}

// Encode seals the payloads.
func (c *codec) Encode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	sealed := make([]*commonpb.Payload, len(payloads))
	for i, p := range payloads {
		plain, err := proto.Marshal(p)
		if err != nil {
			return nil, fmt.Errorf("engine payload: %w", err)
		}
		nonce := make([]byte, c.aead.NonceSize())
		if _, err := rand.Read(nonce); err != nil {
			return nil, fmt.Errorf("engine payload: %w", err)
		}
		sealed[i] = &commonpb.Payload{
			Metadata: map[string][]byte{converter.MetadataEncoding: []byte(encoding), "key": c.key},
			Data:     c.aead.Seal(nonce, nonce, plain, c.key),
		}
	}
	return sealed, nil
}

// Decode opens the payloads and refuses every other.
func (c *codec) Decode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	plain := make([]*commonpb.Payload, len(payloads))
	for i, p := range payloads {
		if string(p.GetMetadata()[converter.MetadataEncoding]) != encoding {
			return nil, errPlain
		}
		if have := p.GetMetadata()["key"]; string(have) != string(c.key) {
			return nil, fmt.Errorf("engine payload: sealed with key %q, this is key %q", have, c.key)
		}
		size := c.aead.NonceSize()
		if len(p.Data) < size {
			return nil, errors.New("engine payload: cut off")
		}
		b, err := c.aead.Open(nil, p.Data[:size], p.Data[size:], c.key)
		if err != nil {
			return nil, fmt.Errorf("engine payload: %w", err)
		}
		plain[i] = &commonpb.Payload{}
		if err := proto.Unmarshal(b, plain[i]); err != nil {
			return nil, fmt.Errorf("engine payload: %w", err)
		}
	}
	return plain, nil
}

// converters seal data and the text of failures.
func converters(key []byte) (converter.DataConverter, converter.FailureConverter, error) {
	c, err := newCodec(key)
	if err != nil {
		return nil, nil, err
	}
	data := converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), c)
	failure := temporal.NewDefaultFailureConverter(temporal.DefaultFailureConverterOptions{
		DataConverter: data, EncodeCommonAttributes: true,
	})
	return data, failure, nil
}

// loadKey reads the key file, 64 hex digits, making one when there is none.
// Without it a history can't be read: open tasks then need a fresh engine file.
func loadKey(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeKey(path); err != nil {
			return nil, fmt.Errorf("engine key: %w", err)
		}
		b, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("engine key: %w", err)
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(b)))
	if err != nil || len(key) != 32 {
		return nil, fmt.Errorf("engine key: %s does not hold 64 hex digits", path)
	}
	return key, nil
}

// makeKey writes a fresh key, whole and durable before it has its name, unless
// there is one.
func makeKey(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	var key [32]byte
	if _, err := rand.Read(key[:]); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".key.*")
	if err != nil {
		return err
	}
	_, err = f.WriteString(hex.EncodeToString(key[:]) + "\n")
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Link(f.Name(), path)
	}
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	return errors.Join(err, os.Remove(f.Name()))
}
