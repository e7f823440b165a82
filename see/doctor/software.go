package doctor

// software is what is installed of the programs that Meridian may meet, the first of each in the order in which the
// dynamic loader, Python and the shell would look. Files are found by name; nothing is loaded or run.
type software struct {
	libraries map[string]library
	packages  map[string]pythonPackage
	programs  map[string]string
}

var (
	wantedLibraries = []string{"libucp.so", "libcuda.so", "libnixl.so", "libnixl_capi.so"}
	wantedPackages  = []wantedPackage{
		{module: "nixl", distribution: "nixl"},
		{module: "nixl_cu12", distribution: "nixl_cu12"},
		{module: "nixl_cu13", distribution: "nixl_cu13"},
		{module: "libucx", distribution: "libucx"},
		{module: "mooncake", distribution: "mooncake_transfer_engine"},
	}
	wantedPrograms = []string{"mooncake_master", "mooncake_client", "transfer_engine_bench"}
)

func (p *boundedHost) installed() *software {
	if p.software == nil {
		commands := p.commands()
		p.software = &software{
			libraries: p.libraries(),
			packages:  p.packages(p.siteDirs(commands.pythons)),
			programs:  commands.wanted,
		}
	}
	return p.software
}
