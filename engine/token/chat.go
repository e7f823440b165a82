package token

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Message is one turn of a conversation.
type Message struct {
	Role, Content string
}

// ChatTemplate writes a conversation as the text a model was trained on. Models
// ship their template as a program in Jinja, which is not run here: the family
// is told by the markers in it, and the conversation is written the plain way
// of that family, without tools, dates or default system prompts.
type ChatTemplate struct {
	name   string
	begin  string // before everything
	header [2]string
	end    string // after each message
}

var (
	chatML = ChatTemplate{name: "chatml", header: [2]string{"<|im_start|>", "\n"}, end: "<|im_end|>\n"}
	llama3 = ChatTemplate{
		name: "llama3", begin: "<|begin_of_text|>",
		header: [2]string{"<|start_header_id|>", "<|end_header_id|>\n\n"}, end: "<|eot_id|>",
	}
)

// ChatML is the template of the built-in models.
func ChatML() ChatTemplate { return chatML }

// String is the name of the family.
func (c ChatTemplate) String() string { return c.name }

// End is the token that ends a message.
func (c ChatTemplate) End() string { return strings.TrimSpace(c.end) }

// Render writes messages and the beginning of the assistant's answer.
func (c ChatTemplate) Render(messages []Message) string {
	return c.History(messages) + c.header[0] + "assistant" + c.header[1]
}

// History writes messages alone: what Render writes of a longer conversation
// that begins with them begins with it.
func (c ChatTemplate) History(messages []Message) string {
	var b strings.Builder
	b.WriteString(c.begin)
	for _, m := range messages {
		b.WriteString(c.header[0] + m.Role + c.header[1])
		if c.name == llama3.name {
			b.WriteString(strings.TrimSpace(m.Content))
		} else {
			b.WriteString(m.Content)
		}
		b.WriteString(c.end)
	}
	return b.String()
}

// OpenChatTemplate recognises the template of the model in a directory, in
// chat_template.jinja or tokenizer_config.json. It fails with ErrUnsupported
// where there is none or it is of an unknown family.
func OpenChatTemplate(dir string) (ChatTemplate, error) {
	source, err := chatTemplateSource(dir)
	if err != nil {
		return ChatTemplate{}, err
	}
	switch {
	case source == "":
		return ChatTemplate{}, fmt.Errorf("%w: %s has no chat template", ErrUnsupported, dir)
	case strings.Contains(source, "<|start_header_id|>") && strings.Contains(source, "<|eot_id|>"):
		return llama3, nil
	case strings.Contains(source, "<|im_start|>") && strings.Contains(source, "<|im_end|>"):
		return chatML, nil
	}
	return ChatTemplate{}, fmt.Errorf("%w: the chat template in %s is neither ChatML nor Llama 3", ErrUnsupported, dir)
}

func chatTemplateSource(dir string) (string, error) {
	source, err := readFile(filepath.Join(dir, "chat_template.jinja"))
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return string(source), err
	}
	path := filepath.Join(dir, "tokenizer_config.json")
	data, err := readFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var file struct {
		Template json.RawMessage `json:"chat_template"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return "", fmt.Errorf("token: %s: %w", path, err)
	}
	var one string
	var several []struct{ Name, Template string }
	if file.Template == nil || json.Unmarshal(file.Template, &one) == nil {
		return one, nil
	}
	if err := json.Unmarshal(file.Template, &several); err != nil {
		return "", fmt.Errorf("token: %s: chat_template is neither a text nor a list of them", path)
	}
	for _, t := range several {
		if t.Name == "default" {
			one = t.Template
		}
	}
	return one, nil
}
