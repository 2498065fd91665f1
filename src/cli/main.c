#include "cli/commands.h"

int main(int argc, char **argv) { return nb_cli_main(argc, argv); }
