package temporal

import (
	"crypto/rand"
	"errors"
	"fmt"

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
type codec struct{ keys *keys }

// Encode seals the payloads.
func (c *codec) Encode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	k := c.keys.current()
	sealed := make([]*commonpb.Payload, len(payloads))
	for i, p := range payloads {
		plain, err := proto.Marshal(p)
		if err != nil {
			return nil, fmt.Errorf("engine payload: %w", err)
		}
		nonce := make([]byte, k.aead.NonceSize())
		if _, err := rand.Read(nonce); err != nil {
			return nil, fmt.Errorf("engine payload: %w", err)
		}
		sealed[i] = &commonpb.Payload{
			Metadata: map[string][]byte{converter.MetadataEncoding: []byte(encoding), "key": []byte(k.name)},
			Data:     k.aead.Seal(nonce, nonce, plain, []byte(k.name)),
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
		k, err := c.keys.named(string(p.GetMetadata()["key"]))
		if err != nil {
			return nil, err
		}
		size := k.aead.NonceSize()
		if len(p.Data) < size {
			return nil, errors.New("engine payload: cut off")
		}
		b, err := k.aead.Open(nil, p.Data[:size], p.Data[size:], []byte(k.name))
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
func converters(k *keys) (converter.DataConverter, converter.FailureConverter) {
	data := converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), &codec{k})
	failure := temporal.NewDefaultFailureConverter(temporal.DefaultFailureConverterOptions{
		DataConverter: data, EncodeCommonAttributes: true,
	})
	return data, failure
}
