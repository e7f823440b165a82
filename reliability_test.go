package meridian

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// testsOf lists the tests of a room, whatever their build tags, as "room.Test…".
func testsOf(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests in %s, %v", dir, err)
	}
	var names []string
	for _, path := range files {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if function, is := d.(*ast.FuncDecl); is && strings.HasPrefix(function.Name.Name, "Test") && function.Name.Name != "TestMain" {
				names = append(names, filepath.Base(dir)+"."+function.Name.Name)
			}
		}
	}
	return names
}

var testName = regexp.MustCompile("`([a-z0-9]+\\.Test[A-Za-z]+|[a-z_]+\\.test_[a-z_0-9]+)`")

// ofVLLM adds the tests of a file that run beside vLLM, as "file.test_…".
func ofVLLM(t *testing.T, file string, exists map[string]bool) {
	t.Helper()
	for _, function := range regexp.MustCompile(`(?m)^def (test_\w+)\(`).FindAllSubmatch(read(t, "python/tests/vllm/"+file+".py"), -1) {
		exists[file+"."+string(function[1])] = true
	}
}

// ofJudges are tests of those who judge: they show nothing of the product.
var ofJudges = map[string]bool{"storm.TestJudge": true, "storm.TestChecker": true, "storm.TestWriterComesBack": true}

// docs/reliability.md says of every fault which test shows what it promises:
// that test exists, and no test of the rooms that break things is left out.
func TestReliabilityIsDocumented(t *testing.T) {
	exists := map[string]bool{}
	for dir, mayStayUnnamed := range map[string]bool{
		"prove/chaos": false, "prove/hostile": false, "prove/faultproxy": true, "prove/storm": false, "move/agent": true, "serve/doorstore": true, "serve/door": true, "run/node": true,
		"keep/store": true, "keep/store/disk": true, "keep/store/protocol": true, "keep/store/s3": true, "keep/store/tier": true, "keep/prefix": true, "move/agent/peerquery": true, "serve/gateway/roster": true,
		"keep/store/owner": true, "serve/doorserver": true,
	} {
		for _, name := range testsOf(t, dir) {
			exists[name] = mayStayUnnamed
		}
	}
	ofVLLM(t, "loads_unit", exists)
	ofVLLM(t, "weights_unit", exists)
	for line := range strings.Lines(string(read(t, "docs/reliability.md"))) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) == 6 && len(testName.FindAllString(cells[4], -1)) == 0 && !strings.Contains(cells[4], "---") && strings.TrimSpace(cells[4]) != "Shown by" {
			t.Errorf("no test shows %q", strings.TrimSpace(cells[1]))
		}
		for _, match := range testName.FindAllStringSubmatch(line, -1) {
			if _, known := exists[match[1]]; !known {
				t.Errorf("docs/reliability.md names %s, which does not exist", match[1])
			}
			exists[match[1]] = true
		}
	}
	for name, named := range exists {
		if !named && !ofJudges[name] {
			t.Errorf("docs/reliability.md does not name %s", name)
		}
	}
}
