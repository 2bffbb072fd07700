from .endpoint_translator import EndpointTranslator as EndpointTranslator
from .profile import EngineProfile as EngineProfile
from .profile import read_profile as read_profile
