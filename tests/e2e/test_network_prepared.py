"""The tests of the network once more, with guests that were prepared before anybody knew what they would be allowed:
gate and broker wait with each of them, and the rules come with the command (prepared_run.py)."""

import os
import pathlib
import shutil

import pytest

import cordon_run
import net_world
from conftest import STRICT, _folder
from test_network import (  # noqa: F401
    fresh, test_attempts_are_recorded, test_both_families, test_bridge, test_curl_allowed,
    test_curl_refused, test_deny_by_address_dialled, test_deny_wins, test_host_port,
    test_localhost_is_the_guests_own, test_low_ports_are_the_guests_too,
    test_own_address_is_local_from_the_first_moment_on, test_own_loopback_keeps_every_port,
    test_ports, test_refused_literal_fails_fast_and_is_recorded, test_udp, test_upstream_proxy, test_wildcard)
from test_network_attacks import (  # noqa: F401
    test_brokers_side_has_no_other_ports, test_guest_cannot_change_its_network, test_internal_literals,
    test_no_road_to_an_address, test_other_servers_are_out_of_reach,
    test_rebinding, test_socket_families, test_tls_name, test_unknown_synthetic_address)
from test_network_flow import test_echo_is_exact, test_reset_arrives  # noqa: F401

HERE = pathlib.Path(__file__).resolve().parent


class PreparedWorld(net_world.NetWorld):
    def run(self, *words, dns=net_world.DNS, env=None, **kw):
        library = os.environ.get("CORDON_LIBRARY") or cordon_run.ROOT / "build" / "src" / "lib" / "libcordon.so.0"
        env = {"PYTHONPATH": str(cordon_run.ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1", "CORDON_LIBRARY": str(library),
               "CORDON_BINARY": cordon_run.CORDON, **(env or {})}
        done = cordon_run.run(*(["--dns", dns] if dns else []), *words, prefix=self.prefix, env=env,
                              program=["/usr/bin/python3", str(HERE / "prepared_run.py")], **kw)
        return done


@pytest.fixture(scope="module")
def net(world):
    why = "needs tier full (guests are prepared there only); this host gives tier " + world.tier if not world.full else net_world.missing()
    if why:
        pytest.fail(why) if STRICT and world.full else pytest.skip(why)
    folder = _folder()
    os.chmod(folder, 0o755)
    internet = PreparedWorld(folder)
    yield internet
    internet.close()
    shutil.rmtree(folder, ignore_errors=True)
